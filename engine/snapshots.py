"""Snapshots: the changes of an operator as rows, and rows as state again.

A snapshot is incremental: it holds what changed since the one before, per key group, as
*segments*. A segment is any number of (operator, state, rows), one packed after the other; a row is
``(key, slot, value)``, or ``(key, slot)`` for a removed slot, or ``(key,)`` for a cleared state.
Loading applies the segments of all snapshots in order.

Rows become segments in small steps, so that the loop of a node is never held up for longer than
one step (about a tenth of a millisecond): most of them early (`encode_early`), as long as they are
in the processor's caches; what is left when a snapshot begins, by `Capture`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from engine.codec import from_columns, pack, to_columns, unpack_all
from engine.errors import MalformedMessage, SnapshotDamaged
from engine.flow import Flow
from engine.ledger import LEDGER, Ledger
from engine.messages import columns
from engine.party import Job
from engine.state import ALL, MISSING, Row, State, StateTable


@dataclass(frozen=True, slots=True)
class StoreSnapshot(Job):
    """Make segments and `meta` of snapshot `number` durable. Result: None."""

    number: int
    segments: dict[int, bytes]
    meta: bytes


LATEST = -1
"""Instead of a number: the newest snapshot that is whole, whichever it is."""


@dataclass(frozen=True, slots=True)
class LoadSnapshot(Job):
    """Forget snapshots after `number` and load it. Result: `Loaded`."""

    number: int


@dataclass(frozen=True, slots=True)
class CommitSnapshot(Job):
    """Snapshot `number` is valid; those before `number` - 1 may be merged.

    Result: whether there is more to do. There is none if it is done as a `whole`; otherwise other
    jobs may be done in between.
    """

    number: int
    whole: bool = True


@dataclass(frozen=True, slots=True)
class Loaded:
    """A snapshot: the meta data of the last part, and the segments in the order to apply them."""

    meta: bytes
    segments: list[bytes]


MERGED_AT_ONCE = 1000
"""Rows that one step of a merge reads or writes, about."""

EARLY_FROM = 4096
"""Rows that a table keeps before it is worth encoding some of them."""


class EarlyEncoder:
    """Encodes the rows of an operator before a snapshot asks for them."""

    def __init__(self, operator: str, table: StateTable) -> None:
        self._operator = operator
        self._table = table
        self._groups: list[int] = []

    def step(self, rows: int) -> bool:
        """Look at about so many rows, if enough wait. Returns whether anything was done."""
        table = self._table
        if not self._groups:
            if table.kept < EARLY_FROM:
                return False
            table.kept = 0
            self._groups = list(table.buckets)
        done = 0
        while self._groups and done < rows:
            done += self._encode(self._groups.pop())
        return True

    def _encode(self, group: int) -> int:
        looked_at = 0
        for state, rows in zip(self._table.declared, self._table.buckets[group], strict=True):
            looked_at += len(rows)
            if state.overwrites:
                rows[:] = _latest(rows)  # not encoded: it would be written again and again
            elif rows:
                piece = _encoded(self._operator, state, rows)
                self._table.pieces.setdefault(group, []).append(piece)
                rows.clear()
        return looked_at


class Capture:
    """What operators have kept since the last snapshot, on its way into segments.

    It is taken at once (a copy of references); to encode it takes many small steps.
    """

    def __init__(self) -> None:
        self.segments: dict[int, bytes] = {}
        self._pieces: dict[int, list[bytes]] = {}
        self._taken: list[tuple[int, str, State, list[Row]]] = []
        self._work = self._steps()

    def take(self, operator: str, table: StateTable) -> None:
        """Take the rows of an operator. What it keeps from now on is for the next snapshot."""
        table.kept = 0
        for group, pieces in table.pieces.items():
            self._pieces.setdefault(group, []).extend(pieces)
        table.pieces.clear()
        for group, bucket in table.buckets.items():
            for state, rows in zip(table.declared, bucket, strict=True):
                if rows:
                    self._taken.append((group, operator, state, rows[:]))
                    rows.clear()

    def step(self) -> bool:
        """Do a little. Returns False when `segments` is complete."""
        return next(self._work, False)

    def _steps(self) -> Iterator[bool]:
        for group, operator, state, rows in self._taken:
            if state.overwrites:
                rows = _latest(rows)
            self._pieces.setdefault(group, []).append(_encoded(operator, state, rows))
            yield True
        self.segments = {group: b"".join(pieces) for group, pieces in self._pieces.items()}


def _latest(rows: list[Row]) -> list[Row]:
    """The last row of each key."""
    return list({row[0]: row for row in rows}.values())


def _encoded(operator: str, state: State, rows: list[Row]) -> bytes:
    return pack((operator, state.name, to_columns(rows)))


def restore(tables: Mapping[str, StateTable], segments: Iterable[bytes]) -> None:
    """Put the rows of segments into the cells of operators. Raises SnapshotDamaged."""
    for _ in _restoring(tables, segments):
        pass
    for table in tables.values():
        for key in list(table):
            table.reclaim(key)


def _restoring(tables: Mapping[str, StateTable], segments: Iterable[bytes]) -> Iterator[int]:
    """Restore in steps. Gives the number of rows in each."""
    places = {
        (name, state.name): (table, index)
        for name, table in tables.items()
        for index, state in enumerate(table.declared)
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
            yield len(rows)


def read_segment(segment: bytes) -> Iterator[tuple[str, str, list[Row]]]:
    """The (operator, state, rows) of a segment. Raises SnapshotDamaged."""
    try:
        for part in unpack_all(segment):
            if not isinstance(part, tuple):
                raise MalformedMessage("not a part of a segment")
            operator, state, encoded = part
            yield operator, state, from_columns(columns(encoded))  # type: ignore[misc]
    except (MalformedMessage, TypeError, ValueError) as error:
        raise SnapshotDamaged(f"a segment cannot be read: {error}") from None


def merge(
    flow: Flow, segments: Iterable[bytes], rows_at_once: int = MERGED_AT_ONCE
) -> Iterator[bytes]:
    """One segment that does what a sequence of segments does: its pieces, after a little work each.

    Some pieces are empty, so that no step takes long.
    """
    tables = {v.name: StateTable(v.states, []) for v in flow.vertices if v.keyed}
    tables[LEDGER] = Ledger().table
    done = 0
    for rows_read in _restoring(tables, segments):
        done += rows_read
        if done >= rows_at_once:
            done = 0
            yield b""
    for name, table in tables.items():
        yield from _pieces(name, table, table, rows_at_once)


def as_segment(operator: str, table: StateTable, keys: Collection[object]) -> bytes:
    """A segment with all that an operator holds for these keys; empty if that is nothing."""
    return b"".join(_pieces(operator, table, keys, MERGED_AT_ONCE))


def _pieces(
    operator: str, table: StateTable, keys: Collection[object], rows_at_once: int
) -> Iterator[bytes]:
    for index, state in enumerate(table.declared):
        rows: list[Row] = []
        for key in keys:
            rows += [(key, *slot) for slot in table.states(key)[index].slots()]
            if len(rows) >= rows_at_once:
                yield _encoded(operator, state, rows)
                rows = []
        if rows:
            yield _encoded(operator, state, rows)
