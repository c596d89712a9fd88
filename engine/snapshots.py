"""Snapshots: the changes of an operator as rows, and rows as state again.

A snapshot is incremental: it holds what changed since the one before, per key group, as
*segments*. A segment is a sequence of (operator, state, rows); a row is ``(key, slot, value)``, or
``(key, slot)`` for a removed slot, or ``(key,)`` for a cleared state. Loading applies the
segments of all snapshots in order.

`Capture` turns changes into segments in small steps, so that the loop of a node is never held up
for longer than one step (about a tenth of a millisecond).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from engine.codec import Columns, from_columns, pack, to_columns, unpack
from engine.errors import MalformedMessage, SnapshotDamaged
from engine.flow import Flow
from engine.messages import columns
from engine.party import Job
from engine.state import ALL, MISSING, Row, State, StateTable


@dataclass(frozen=True, slots=True)
class StoreSnapshot(Job):
    """Make segments and `meta` of snapshot `number` durable. Result: None."""

    number: int
    segments: dict[int, bytes]
    meta: bytes


@dataclass(frozen=True, slots=True)
class LoadSnapshot(Job):
    """Forget snapshots after `number` and load it. Result: `Loaded`."""

    number: int


@dataclass(frozen=True, slots=True)
class CommitSnapshot(Job):
    """Snapshot `number` is valid; those before `number` - 1 may be merged. Result: None."""

    number: int


@dataclass(frozen=True, slots=True)
class Loaded:
    """A snapshot: the meta data of the last part, and the segments in the order to apply them."""

    meta: bytes
    segments: list[bytes]


class Capture:
    """The rows that operators have kept since the last snapshot, on their way into segments.

    They are taken at once (a copy of references); to encode them takes many small steps.
    """

    def __init__(self) -> None:
        self.segments: dict[int, bytes] = {}
        self._taken: list[tuple[int, str, State, list[Row]]] = []
        self._work = self._steps()

    def take(self, operator: str, table: StateTable) -> None:
        """Take the rows of an operator. What it keeps from now on is for the next snapshot."""
        for group, bucket in table.buckets.items():
            for state, rows in zip(table.declared, bucket, strict=True):
                if rows:
                    self._taken.append((group, operator, state, rows[:]))
                    rows.clear()

    def step(self) -> bool:
        """Do a little. Returns False when `segments` is complete."""
        return next(self._work, False)

    def _steps(self) -> Iterator[bool]:
        parts: dict[int, list[tuple[str, str, Columns]]] = {}
        for group, operator, state, rows in self._taken:
            if state.overwrites:
                rows = list({row[0]: row for row in rows}.values())
            parts.setdefault(group, []).append((operator, state.name, to_columns(rows)))
            yield True
        for group, part in parts.items():
            self.segments[group] = pack(part)
            yield True


def restore(flow: Flow, tables: Mapping[str, StateTable], segments: Iterable[bytes]) -> None:
    """Put the rows of segments into the cells of operators. Raises SnapshotDamaged."""
    places = {
        (vertex.name, state.name): (tables[vertex.name], index)
        for vertex in flow.vertices
        for index, state in enumerate(vertex.states)
    }
    for segment in segments:
        for operator, name, rows in read_segment(segment):
            if (operator, name) not in places:
                raise SnapshotDamaged(f"state {name!r} of operator {operator!r} is not in the flow")
            table, index = places[operator, name]
            for row in rows:
                state = table.states(row[0])[index]
                if len(row) == 3:
                    state.assign(row[1], row[2])
                elif len(row) == 2:
                    state.assign(row[1], MISSING)
                else:
                    state.assign(ALL, MISSING)
    for table in tables.values():
        for key in list(table):
            table.reclaim(key)


def read_segment(segment: bytes) -> Iterator[tuple[str, str, list[Row]]]:
    """The (operator, state, rows) of a segment. Raises SnapshotDamaged."""
    try:
        parts = unpack(segment)
        assert isinstance(parts, tuple)
        for operator, state, encoded in parts:
            rows = from_columns(columns(encoded))
            yield operator, state, rows  # type: ignore[misc]
    except (MalformedMessage, AssertionError, TypeError, ValueError) as error:
        raise SnapshotDamaged(f"a segment cannot be read: {error}") from None


def join_segments(first: bytes, then: bytes | None) -> bytes:
    """One segment that does what two do, one after the other, without looking at the rows."""
    if then is None:
        return first
    return pack((*unpack(first), *unpack(then)))  # type: ignore[misc]


def merge(flow: Flow, segments: Iterable[bytes]) -> bytes:
    """One segment that does what a sequence of segments does."""
    tables = {v.name: StateTable(v.states, []) for v in flow.vertices if v.keyed}
    restore(flow, tables, segments)
    parts: list[tuple[str, str, Columns]] = []
    for vertex in flow.vertices:
        for index, state in enumerate(vertex.states):
            rows = [
                (key, slot, value)
                for key in tables[vertex.name]
                for slot, value in tables[vertex.name].states(key)[index].slots()
            ]
            if rows:
                parts.append((vertex.name, state.name, to_columns(rows)))
    return pack(parts)
