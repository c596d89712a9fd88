"""Events against trying all watches on all versions, however the watches are saved meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driftline.engine.errors import SnapshotDamaged
from driftline.engine.wire.codec import pack
from driftline.index.documents.analysis import analyser
from driftline.index.documents.schema import Collection, TextField, ValueField
from driftline.index.documents.values import Kind
from driftline.index.documents.versions import Version
from driftline.index.query.parsing import QueryError, parse
from driftline.index.search.saving import Saved
from driftline.index.watches import watches
from driftline.index.watches.watches import Change, Event, Watches
from tests.index.search.indexes import DOCUMENT, versions
from tests.index.search.model import Document, Write, matches

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

IN_TEXTS = ("a", "abc", "title:ab", '"a b"', 'title:"b a a"', "ab*", "title:c*", "ab~", "-a")
IN_VALUES = ("tags:x", "tags:x*", "year:>=0", "day:[* TO 1970-01-01]", "-tags:z")
LEAVES = (*IN_TEXTS, *IN_VALUES, "*", "", "((", "none:a")


def both(queries: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    two = st.tuples(queries, queries)
    return two.map(lambda each: "({}) ({})".format(*each)) | two.map(
        lambda each: "({}) OR ({})".format(*each)
    )


QUERIES = st.recursive(st.sampled_from(LEAVES), both, max_leaves=3)

PUT = st.tuples(st.just("put"), st.sampled_from("vwxyz"), QUERIES)
REMOVE = st.tuples(st.just("remove"), st.sampled_from("vwxyz"), st.none())
WRITE = st.tuples(st.just("write"), st.sampled_from("pq"), st.none() | DOCUMENT)
RETAIN = st.tuples(st.just("retain"), st.just(""), st.integers(0, 6))
SAVE = st.tuples(st.just("save"), st.just(""), st.none())
STEPS = st.lists(
    st.tuples(PUT | PUT | WRITE | WRITE | WRITE | REMOVE | RETAIN | SAVE, st.integers(1, 2)),
    max_size=40,
)


@dataclass
class BruteForce:
    """Tries all watches on all versions."""

    collection: Collection = COLLECTION
    queries: dict[str, str] = field(default_factory=dict)
    documents: dict[str, Document] = field(default_factory=dict)
    events: dict[str, list[Event]] = field(default_factory=dict)

    def write(self, time: int, id: str, document: Document | None) -> None:
        before = self.documents.pop(id, None)
        if document is not None:
            self.documents[id] = document
        for watch, query in self.queries.items():
            does, did = self._matches(query, document), self._matches(query, before)
            if does != did:
                change: Change = "begins" if does else "ceases"
                self.events.setdefault(watch, []).append(Event(time, id, change))

    def _matches(self, query: str, document: Document | None) -> bool:
        try:
            root = parse(query, self.collection).root
        except QueryError:
            return False
        return document is not None and matches(root, document)


def before_of(last: Version | None) -> Callable[[], Version | None]:
    def before() -> Version | None:
        assert last is not None, "asked for what is not there"
        return last

    return before


@settings(max_examples=300)
@given(steps=STEPS, swept_from=st.integers(0, 3), limit=st.integers(1, 4))
def test_events_are_those_of_trying_everything(
    steps: list[tuple[tuple[str, str, object], int]], swept_from: int, limit: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(watches, "SWEPT_FROM", swept_from)
        go(steps, limit)


def go(steps: list[tuple[tuple[str, str, object], int]], limit: int) -> None:
    expected, found, writes, since, time = BruteForce(), Watches(COLLECTION), [], 0, 0
    last: dict[str, Version] = {}
    for (what, id, value), step in steps:
        time += step
        match what, value:
            case "put", str():
                expected.queries[id] = value
                found.put(time, id, value)
            case "remove", _:
                expected.queries.pop(id, None)
                found.remove(time, id)
            case "write", Document() | None:
                writes.append(Write(time, id, value))
                for at, version in list(versions(writes))[-1:]:
                    if at == time:
                        found.apply(time, version, before_of(last.get(id)))
                        last[id] = version
                expected.write(time, id, value)
            case "retain", int():
                since = max(since, time - value)
                found.retain(since)
            case _:
                parts = list(found.save())
                found = Watches(COLLECTION)
                found.load(Saved(parts))
                assert list(found.save()) == parts
        check(found, expected, since, limit)


def check(found: Watches, expected: BruteForce, since: int, limit: int) -> None:
    there = {watch.id: watch.query for watch in found.watches()}
    assert there == dict(sorted(expected.queries.items()))
    count = 0
    for watch in "vwxyz":
        happened = [each for each in expected.events.get(watch, ()) if each.time >= since]
        count += len(happened)
        assert found.events(watch, since, 1000) == happened
        for each in happened[:3]:
            later = [other for other in happened if other.time >= each.time]
            assert found.events(watch, each.time, limit) == later[:limit]
        known = found.find(watch)
        assert (known.query if known else None) == expected.queries.get(watch)
    assert found.figures()["watch_events"] == count
    assert found.figures()["watches"] == len(expected.queries)


def test_each_change_of_a_document_makes_the_events_that_it_should() -> None:
    queries = [*LEAVES, "a b", "title:b text:a", "(a -b) OR (tags:z year:<3)", '"a b" -text:caa']
    documents = [
        Document((("a", "b"), ())),
        Document((("b", "a", "ab"), ("a",)), ("x", "z"), 2.0),
        Document((("b",), ("a", "caa")), (), None, 8),
        Document(((), ("abc",)), ("xy",), -1.5, -7),
        Document(((), ())),
    ]
    watching, expected = Watches(COLLECTION), BruteForce()
    for number, query in enumerate(queries):
        watching.put(number, query, query)
        expected.queries[query] = query
    times = count(1000)
    changes = [
        Write(next(times), "p", each) for two in product(documents, repeat=2) for each in two
    ]
    for each in documents:
        changes += [Write(next(times), "p", None), Write(next(times), "p", each)]
    last: Version | None = None
    for (time, version), write in zip(versions(changes), changes, strict=True):
        watching.apply(time, version, before_of(last))
        last = version
        expected.write(time, "p", write.document)
    for query in queries:
        assert watching.events(query, 0, 1000) == expected.events.get(query, []), query


def test_events_outlive_their_watch_as_long_as_they_are_retained() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(watches, "SWEPT_FROM", 0)
        watching = Watches(COLLECTION)
        watching.put(1, "w", "a")
        watching.put(1, "v", "a")
        writes = [Write(at, "p", None if at % 2 else Document((("a",), ()))) for at in range(2, 8)]
        for time, version in versions(writes):
            watching.apply(time, version, before_of(None))
        watching.remove(8, "w")
        watching.retain(6)
        later = [Event(6, "p", "begins"), Event(7, "p", "ceases")]
        assert watching.events("w", 6, 9) == later
        again = Watches(COLLECTION)
        again.load(Saved(list(watching.save())))
        assert again.events("w", 6, 9) == again.events("v", 6, 9) == later


def test_the_version_before_is_asked_for_only_if_it_matters() -> None:
    watching = Watches(COLLECTION)
    watching.put(1, "w", "title:a")
    watching.put(2, "v", "title:b title:c")
    writes = [
        Write(3, "p", Document((("a", "x"), ()))),
        Write(4, "p", Document((("a", "y"), ()))),
        Write(5, "p", None),
    ]
    for time, version in versions(writes):
        watching.apply(time, version, before_of(None))
    assert watching.events("w", 0, 9) == [Event(3, "p", "begins"), Event(5, "p", "ceases")]


def test_what_was_forgotten_and_removed_takes_no_memory() -> None:
    watching = Watches(COLLECTION)
    nothing = list(watching.save())
    watching.put(1, "w", "a")
    watching.remove(2, "w")
    assert list(watching.save()) == nothing
    for number in range(0, 30_000, 3):
        watching.put(number, str(number), "a")
    writes = [Write(30_000, "p", Document((("a",), ()))), Write(30_001, "p", None)]
    for time, version in versions(writes):
        watching.apply(time, version, before_of(None))
    for number in range(0, 30_000, 3):
        watching.remove(40_000, str(number))
    assert sum(map(len, watching.save())) > 100_000
    watching.retain(40_000)
    assert list(watching.save()) == nothing


def test_damaged_parts_are_refused() -> None:
    watching = Watches(COLLECTION)
    watching.put(1, "w", "a")
    [(time, version)] = versions([Write(3, "p", Document((("a",), ())))])
    watching.apply(time, version, before_of(None))
    parts = list(watching.save())
    assert len(parts) == 7
    for number, damage in product(range(7), [7, (7,), (), b"1234567", ("a", "b"), None]):
        damaged = [] if damage is None else [pack(damage)]
        with pytest.raises(SnapshotDamaged):
            Watches(COLLECTION).load(Saved([*parts[:number], *damaged, *parts[number + 1 :]]))
