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
from engine.keyed import Final
from engine.keygroups import GroupCache
from engine.messages import columns
from engine.party import Job
from engine.state import ALL, MISSING, CellTable, Change, State

Row = tuple[object, ...]

STEP = 256
"""Changes that a capture works off at a time."""


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
    """The final changes of operators below a time, on their way into segments.

    What is final but not below the time yet is left for the next snapshot.
    """

    def __init__(self, operators: Mapping[str, Final], time: int, groups: GroupCache) -> None:
        self.segments: dict[int, bytes] = {}
        self._work = self._steps(operators, time, groups)

    def step(self) -> bool:
        """Do a little. Returns False when `segments` is complete."""
        return next(self._work, False)

    def _steps(
        self, operators: Mapping[str, Final], time: int, groups: GroupCache
    ) -> Iterator[bool]:
        rows: dict[int, dict[tuple[str, str], list[Row]]] = {}
        for name, operator in operators.items():
            final, operator.final = operator.final, []
            later: list[tuple[int, list[Change]]] = []
            latest: dict[tuple[State, object], object] = {}
            for i, entry in enumerate(final, 1):
                if entry[0] >= time:
                    later.append(entry)
                    continue
                for state, slot, _, new in entry[1]:
                    latest.pop((state, slot), None)  # the last change comes last: ALL needs it
                    latest[state, slot] = new
                if not i % STEP:
                    yield True
            operator.final = later + operator.final
            for i, ((state, slot), new) in enumerate(latest.items(), 1):
                key = state.cell.key
                of_group = rows.setdefault(groups[key], {})
                of_group.setdefault((name, state.name), []).append(_row(key, slot, new))
                if not i % STEP:
                    yield True
        for group, parts in rows.items():
            self.segments[group] = pack(
                [(name, state, to_columns(part)) for (name, state), part in parts.items()]
            )
            yield True


def _row(key: object, slot: object, value: object) -> Row:
    if slot is ALL:
        return (key,)
    return (key, slot) if value is MISSING else (key, slot, value)


def restore(flow: Flow, tables: Mapping[str, CellTable], segments: Iterable[bytes]) -> None:
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
                state = table[row[0]].states[index]
                if len(row) == 3:
                    state.assign(row[1], row[2])
                elif len(row) == 2:
                    state.assign(row[1], MISSING)
                else:
                    state.assign(ALL, MISSING)
    for table in tables.values():
        for key in [key for key, cell in table.items() if cell.is_empty()]:
            del table[key]


def read_segment(segment: bytes) -> Iterator[tuple[str, str, list[Row]]]:
    """The (operator, state, rows) of a segment. Raises SnapshotDamaged."""
    try:
        parts = unpack(segment)
        assert isinstance(parts, tuple)
        for operator, state, encoded in parts:
            rows = from_columns(columns(encoded))
            yield operator, state, rows  # type: ignore[misc]
    except (MalformedMessage, AssertionError, ValueError) as error:
        raise SnapshotDamaged(f"a segment cannot be read: {error}") from None


def join_segments(first: bytes, then: bytes | None) -> bytes:
    """One segment that does what two do, one after the other, without looking at the rows."""
    if then is None:
        return first
    return pack((*unpack(first), *unpack(then)))  # type: ignore[misc]


def merge(flow: Flow, segments: Iterable[bytes]) -> bytes:
    """One segment that does what a sequence of segments does."""
    tables = {v.name: CellTable(v.states, []) for v in flow.vertices if v.keyed}
    restore(flow, tables, segments)
    parts: list[tuple[str, str, Columns]] = []
    for vertex in flow.vertices:
        for index, state in enumerate(vertex.states):
            rows = [
                (cell.key, slot, value)
                for cell in tables[vertex.name].values()
                for slot, value in cell.states[index].slots()
            ]
            if rows:
                parts.append((vertex.name, state.name, to_columns(rows)))
    return pack(parts)
