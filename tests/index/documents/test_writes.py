"""Outcomes of writes, against a dict and the documented rules, also after kills."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driftline import FlowTest, run_reference
from driftline.index.documents.schema import DEFAULT, DocumentRefused
from driftline.index.documents.versions import DocumentVersion, replaced_fields
from driftline.index.documents.writes import (
    KEYS_PER_DOCUMENT,
    QUERY_LENGTH_MAX,
    SINK,
    NotWritten,
    Outcome,
    Watched,
    WatchWrite,
    Write,
    document_flow,
    outcome_of,
    write_of,
)
from driftline.index.query.parsing import LENGTH_MAX

TEXTS = st.sampled_from(("", "a cat", "a dog, a cat"))
WRITE = st.builds(
    Write,
    st.just("documents"),
    st.sampled_from(("p", "q")),
    st.none() | st.fixed_dictionaries({"title": TEXTS, "more": st.integers(0, 3)}),
    st.none() | st.integers(0, 6),
    st.sampled_from(("", "", "k1", "k2")),
)
WATCH = st.builds(
    WatchWrite,
    st.just("documents"),
    st.sampled_from(("p", "w")),  # a watch may have the same id as a document
    st.sampled_from((None, "cat", "((")),
)


def outcomes(writes: Sequence[Write | WatchWrite]) -> list[Outcome]:
    records = [write.record() for write in writes]
    return [outcome_of(item.value) for item in run_reference(document_flow(DEFAULT), [records])]


@given(st.lists(WRITE | WATCH, max_size=14))
def test_each_write_has_one_outcome_by_the_rules(writes: list[Write | WatchWrite]) -> None:
    there: dict[str, int] = {}
    keys: dict[tuple[str, str], int] = {}
    last: dict[str, DocumentVersion] = {}
    found = outcomes(writes)
    assert len(found) == len(writes)
    for time, (write, outcome) in enumerate(zip(writes, found, strict=True), 1):
        if isinstance(write, WatchWrite):
            assert outcome == Watched(write.collection, write.id, write.query)
            continue
        id, before = write.id, there.get(write.id, 0)
        about = write.collection, id
        if write.key and (id, write.key) in keys:
            earlier = keys[id, write.key]
            was_absent = found[earlier - 1] == NotWritten(*about, "absent", 0)
            assert outcome == NotWritten(*about, "absent" if was_absent else "repeated", earlier)
            continue
        if write.expected is not None and write.expected != before:
            assert outcome == NotWritten(*about, "changed", before)
            continue
        if write.key:
            keys[id, write.key] = time
        there[id] = 0 if write.document is None else time
        if write.document is None and not before:
            assert outcome == NotWritten(*about, "absent", 0)
            continue
        assert isinstance(outcome, DocumentVersion)
        assert outcome.deleted == (write.document is None)
        assert outcome.replaced == (replaced_fields(last[id]) if before else None)
        if write.document is not None:
            assert json.loads(outcome.stored) == write.document
        last[id] = outcome


def test_only_the_last_keys_of_a_document_are_known() -> None:
    keys = [f"k{number}" for number in range(KEYS_PER_DOCUMENT + 1)]
    writes = [Write("documents", "p", {"title": key}, key=key) for key in (*keys, keys[1], keys[0])]
    *_, known, forgotten = outcomes(writes)
    assert known == NotWritten("documents", "p", "repeated", 2)
    assert isinstance(forgotten, DocumentVersion)


def test_outcomes_are_the_same_after_kills() -> None:
    writes = [
        write
        for number in range(4)
        for write in (
            Write("documents", "p", {"title": f"p {number}"}),
            Write("documents", "q", {"title": f"q {number}"}, 3 * number and 3 * number - 1),
            WatchWrite("documents", "p", f"cat {number}" if number % 2 else None),
        )
    ]
    with FlowTest(document_flow(DEFAULT), nodes=2) as test:
        for number, write in enumerate(writes):
            if number % 4 == 2:
                test.kill(f"node-{number % 2}")
            test.send("writes", write.record())
        assert sorted(map(repr, map(outcome_of, test.outputs(SINK)))) == sorted(
            map(repr, outcomes(writes))
        )


def test_rejection_names_the_document_or_watch() -> None:
    about = "of 'documents':"
    for write, said in (
        (
            Write("documents", "1", {"title": 3}),
            f"document '1' {about} field 'title': 3 is not a text",
        ),
        (
            Write("documents", "1", None, key="k" * 201),
            f"document '1' {about} the key has 201 char",
        ),
        (WatchWrite("documents", "w", "q" * 4097), f"watch 'w' {about} the query has 4097 char"),
    ):
        with pytest.raises(DocumentRefused) as refused:
            write_of(write.record(), DEFAULT)
        assert str(refused.value).startswith(said)
    assert QUERY_LENGTH_MAX == LENGTH_MAX, "each query that parses must be storable"
