"""Helpers for states of keyed operators: change them, show their contents, capture segments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from hypothesis import strategies as st

from driftline.engine.errors import Unavailable
from driftline.engine.flow.flow import Flow
from driftline.engine.operators.operator import Vertex
from driftline.engine.snapshots.jobs import (
    Capture,
    Loaded,
    LoadSnapshot,
    MergeParts,
    StoreSnapshot,
)
from driftline.engine.snapshots.merging import restore
from driftline.engine.snapshots.store import LmdbStore, PartStore
from driftline.engine.state.changelog import Changelog
from driftline.engine.state.managed import ListState, MapState, ValueState
from driftline.engine.state.table import StateTable
from driftline.simulation.world.disks import MemoryKeyValue

FLOW = Flow("snapshots", groups=4)
(
    FLOW.source("in")
    .key_by(0)
    .scan(
        lambda *_: None,
        ValueState[object]("value"),
        ListState[object]("list"),
        MapState[object, object]("map"),
        name="first",
    )
    .key_by(0)
    .scan(lambda *_: None, ValueState[object]("value"), name="second")
    .sink()
)
OPERATORS = [vertex for vertex in FLOW.vertices if vertex.is_keyed]


class Table(StateTable):
    """State table with its changelog."""

    def __init__(self, vertex: Vertex) -> None:
        super().__init__(vertex.states, [])
        self.changelog = Changelog(vertex.name, vertex.states)

    def keep(self) -> None:
        """Make all changes final."""
        self.changelog.add_changes(self.undo_log)
        self.undo_log.clear()


def tables() -> dict[str, Table]:
    return {vertex.name: Table(vertex) for vertex in OPERATORS}


Step = tuple[str, str, int]
"""(what, key, number) of one change."""

steps = st.lists(
    st.tuples(
        st.sampled_from(["set", "clear", "append", "pop", "put", "remove", "empty", "second"]),
        st.sampled_from("abcdef"),
        st.integers(0, 3),
    ),
    max_size=12,
)
"""The final changes between two snapshots."""


def change(found: dict[str, Table], made: list[Step]) -> None:
    for what, key, number in made:
        table = found["second" if what == "second" else "first"]
        value, many, mapped = (*table.states(key), None, None)[:3]
        assert isinstance(value, ValueState)
        if what == "second":
            value.set(number)
            table.keep()
            continue
        assert isinstance(many, ListState)
        assert isinstance(mapped, MapState)
        if what == "set":
            value.set((key, number, float(number)))
        elif what == "clear":
            value.clear()
        elif what == "append":
            many.append(number)
        elif what == "pop" and len(many):
            many.pop()
        elif what == "put":
            mapped[number] = key
        elif what == "remove" and number in mapped:
            del mapped[number]
        elif what == "empty":
            many.clear()
            mapped.clear()
        table.keep()


def held(found: Mapping[str, StateTable]) -> list[str]:
    """Return the contents of tables, independent of history, with 1 and 1.0 distinct."""
    return sorted(
        repr((name, key, state.name, sorted(state.slots(), key=repr)))
        for name, table in found.items()
        for key in list(table)
        for state in table.states(key)
        if not state.is_empty()
    )


def capture(found: Mapping[str, Table]) -> dict[int, bytes]:
    capture = Capture()
    for table in found.values():
        capture.take(table.changelog)
    while capture.step():
        pass
    return capture.segments


def loaded(segments: Iterable[bytes]) -> list[str]:
    found = tables()
    restore(found, segments)
    return held(found)


# Snapshot stores, in memory or on disk: fill and load


def part_store(kv: MemoryKeyValue | LmdbStore, merge_at: int = 3) -> PartStore:
    return PartStore(kv, FLOW, merge_at)


LATEST = -1


def load_job(number: int) -> LoadSnapshot:
    return LoadSnapshot(0, allow_later=True) if number == LATEST else LoadSnapshot(number)


def load(store: PartStore, number: int) -> tuple[bytes, list[str]]:
    found = store.execute_job(load_job(number))
    assert isinstance(found, Loaded)
    return found.meta, loaded(found.segments)


def fill(store: PartStore, numbers: Iterable[int], commit: bool = True) -> dict[int, list[str]]:
    """Store snapshots. Return the contents of each."""
    found = tables()
    shown: dict[int, list[str]] = {}
    before = 0
    for number in numbers:
        change(found, [("append", "a", number), ("set", "bcdef"[number % 5], number)])
        store.execute_job(StoreSnapshot(number, capture(found), b"meta %d" % number))
        if commit:
            store.execute_job(MergeParts(number, before))
        shown[number] = held(found)
        before = number
    return shown


class UnsteadyStore(MemoryKeyValue):
    """Store whose reads fail while `failing` is set."""

    failing = False

    def read(self, key: bytes) -> bytes | None:
        if self.failing:
            raise Unavailable("the disk does not answer")
        return super().read(key)
