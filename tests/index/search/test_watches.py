"""Watches: retained state, and matching of versions against a brute-force matcher."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driftline.engine.errors import SnapshotDamaged
from driftline.engine.wire.codec import pack
from driftline.index.documents.analysis import analyser
from driftline.index.documents.schema import DEFAULT, Collection, TextField, ValueField
from driftline.index.documents.values import Kind
from driftline.index.documents.versions import DocumentVersion
from driftline.index.postings.memory_segment import MemorySegment
from driftline.index.query.parsing import QueryError, parse
from driftline.index.query.tree import (
    Keyword,
    Query,
)
from driftline.index.search import watches
from driftline.index.search.checkpoint_codec import CheckpointReader
from driftline.index.search.shard import Shard
from driftline.index.search.version_matching import Anchor, VersionContents, anchors_of
from driftline.index.search.version_matching import matches as matches_alone
from driftline.index.search.watches import Change, Event, WatchIndex
from tests.index.search.indexes import DOCUMENT, KINDS, QUERY, WEIGHTS, versions
from tests.index.search.model import ModelDocument, ModelWrite, matches

COLLECTION = Collection(
    "c",
    (
        TextField("title", 0, analyser("plain"), 2.0),
        TextField("text", 1, analyser("plain"), 1.0),
        ValueField("tags", 0, Kind.KEYWORD),
        ValueField("year", 1, Kind.NUMBER),
        ValueField("day", 2, Kind.DATE),
    ),
    "stored",
)


@dataclass
class BruteForceWatches:
    """Matcher that tries all watches on all versions."""

    collection: Collection = COLLECTION
    queries: dict[str, str] = field(default_factory=dict)
    documents: dict[str, ModelDocument] = field(default_factory=dict)
    events: dict[str, list[Event]] = field(default_factory=dict)

    def write(self, time: int, id: str, document: ModelDocument | None) -> None:
        before = self.documents.pop(id, None)
        if document is not None:
            self.documents[id] = document
        for watch, query in self.queries.items():
            matches_now, matched_before = (
                self._matches(query, document),
                self._matches(query, before),
            )
            if matches_now != matched_before:
                change: Change = "entered" if matches_now else "left"
                self.events.setdefault(watch, []).append(Event(time, id, change))

    def _matches(self, query: str, document: ModelDocument | None) -> bool:
        try:
            root = parse(query, self.collection).root
        except QueryError:
            return False
        return document is not None and matches(root, document)


def before_of(last: DocumentVersion | None) -> Callable[[], DocumentVersion | None]:
    def before() -> DocumentVersion | None:
        assert last is not None, "the previous version was requested, but there is none"
        return last

    return before


def test_events_outlive_their_watch_as_long_as_they_are_retained() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(watches, "SWEEP_MIN", 0)
        watching = WatchIndex(COLLECTION)
        watching.put(1, "w", "a")
        watching.put(1, "v", "a")
        writes = [
            ModelWrite(at, "p", None if at % 2 else ModelDocument((("a",), ())))
            for at in range(2, 8)
        ]
        for time, version in versions(writes):
            watching.apply(time, version, before_of(None))
        watching.remove(8, "w")
        watching.forget_before(6)
        later = [Event(6, "p", "entered"), Event(7, "p", "left")]
        assert watching.events("w", 6, 9) == later
        again = WatchIndex(COLLECTION)
        again.load(CheckpointReader(list(watching.save())))
        assert again.events("w", 6, 9) == again.events("v", 6, 9) == later


def test_removed_watches_and_expired_events_are_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    watching = WatchIndex(COLLECTION)
    nothing = list(watching.save())
    watching.put(1, "w", "a")
    watching.remove(2, "w")
    assert list(watching.save()) == nothing
    for number in range(1_000):
        watching.put(number, str(number), "a")
    writes = [ModelWrite(30_000, "p", ModelDocument((("a",), ()))), ModelWrite(30_001, "p", None)]
    for time, version in versions(writes):
        watching.apply(time, version, before_of(None))
    for number in range(1_000):
        watching.remove(40_000, str(number))
    assert sum(map(len, watching.save())) > 5_000
    monkeypatch.setattr(watches, "SWEEP_MIN", 1_000)
    watching.forget_before(40_000)
    assert list(watching.save()) == nothing


def test_damaged_parts_are_rejected() -> None:
    watching = WatchIndex(COLLECTION)
    watching.put(1, "w", "a")
    [(time, version)] = versions([ModelWrite(3, "p", ModelDocument((("a",), ())))])
    watching.apply(time, version, before_of(None))
    parts = list(watching.save())
    assert len(parts) == 7
    for number, damage in product(range(7), [7, (7,), (), b"1234567", ("a", "b"), None]):
        damaged = [] if damage is None else [pack(damage)]
        with pytest.raises(SnapshotDamaged):
            WatchIndex(COLLECTION).load(
                CheckpointReader([*parts[:number], *damaged, *parts[number + 1 :]])
            )


@given(QUERY, st.lists(st.integers(0, 9), min_size=5, max_size=5), DOCUMENT)
def test_matching_document_contains_an_anchor(
    query: Query, frequencies: list[int], document: ModelDocument
) -> None:
    anchors = anchors_of(query.root, lambda field, word: frequencies[(field + len(word)) % 5])
    if anchors is not None and matches(query.root, document):
        assert any(
            each.text in (document.keywords if each.is_keyword else document.texts[each.field])
            for each in anchors
        )


def test_anchor_is_the_rarest_part() -> None:
    frequencies = {"the": 990, "cat": 50, "purrs": 770, "a": 20}

    def anchors(query: str) -> list[str] | None:
        root = parse(query, DEFAULT.collections["documents"]).root
        found = anchors_of(root, lambda field, word: frequencies.get(word, 0))
        return None if found is None else [f"{each.field}:{each.text}" for each in found]

    assert anchors("the cat purrs") == ["0:cat", "1:cat"]
    assert anchors('text:"the purrs cat"') == ["0:cat"]
    assert anchors("the (cat OR text:a) -dog") == ["0:cat", "1:cat", "0:a"]
    assert anchors("the c* ca~") == ["0:the", "1:the"]
    for query in ("cat OR -the", "*", "c*", "cat~"):
        assert anchors(query) is None
    assert anchors_of(Keyword(0, "f", "x"), lambda *_: 0) == (Anchor(True, 0, "x"),)


LONGER = st.lists(st.sampled_from("abc"), max_size=12).map(tuple)


@given(queries=st.lists(QUERY, min_size=1, max_size=5), document=DOCUMENT, text=st.none() | LONGER)
def test_single_version_matches_as_in_a_shard(
    queries: list[Query], document: ModelDocument, text: tuple[str, ...] | None
) -> None:
    if text is not None:  # phrases may then occur several times
        document = replace(document, texts=(text, document.texts[1]))
    shard = Shard(MemorySegment(0, 2, KINDS), WEIGHTS)
    [(time, version)] = versions([ModelWrite(1, "p", document)])
    shard.apply(time, version)
    for query in queries:
        found = matches_alone(query.root, VersionContents.of(version))
        assert found == (shard.count(query, time + 1) == 1), query
        assert found == matches(query.root, document), query
