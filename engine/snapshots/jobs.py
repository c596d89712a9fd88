"""Snapshots: what operators have kept as segments, and segments as state again.

A snapshot is incremental: it holds what changed since the one before, as *segments* of rows
(`engine.state.changelog`). What a node writes is one segment, in the order in which changes became
final; only when parts of the store are joined, which is not urgent, are its rows sorted by key
group. Loading applies the segments of all snapshots in order.

What is left to encode when a snapshot begins is encoded in small steps, so that the loop of a node
is never held up for longer than one step (about a tenth of a millisecond).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from operator import itemgetter

from driftline.engine.compared.ledger import LEDGER, Ledger
from driftline.engine.errors import MalformedMessage, SnapshotDamaged
from driftline.engine.flow.flow import Flow
from driftline.engine.keygroups import GroupCache
from driftline.engine.state.changelog import Changelog, Row, encoded
from driftline.engine.state.managed import ALL, MISSING, StateTable
from driftline.engine.state.serialised import serialise
from driftline.engine.state.values import Frozen, keep_frozen
from driftline.engine.wire.codec import decode_rows, unpack_all
from driftline.engine.wire.party import Job

_last = itemgetter(-1)


@dataclass(frozen=True, slots=True)
class StoreSnapshot(Job):
    """Make segments and `meta` of snapshot `number` durable. Result: None.

    `taken`: the incarnation, as another one may take another snapshot of the same number.
    """

    number: int
    segments: dict[int, bytes]
    meta: bytes
    taken: int = 0


@dataclass(frozen=True, slots=True)
class LoadSnapshot(Job):
    """Forget snapshots after `number`, and load it, as it was `taken`. Result: `Loaded`.

    `or_later`: load the newest one instead, which has at least this number.
    """

    number: int
    taken: int = 0
    or_later: bool = False


@dataclass(frozen=True, slots=True)
class CommitSnapshot(Job):
    """Snapshot `number` is valid, and `before` is the valid one before it (0: none).

    Both stay loadable; parts up to `before` may be joined. Result: whether there is more to do.
    There is none if it is done as a `whole`; otherwise other jobs may be done in between.
    """

    number: int
    before: int
    whole: bool = True


@dataclass(frozen=True, slots=True)
class Loaded:
    """A snapshot: the meta data of the last part, and the segments in the order to apply them."""

    meta: bytes
    segments: list[bytes]
    number: int = 0


MERGED_AT_ONCE = 1000
"""Rows that one step of a merge reads or writes, about."""

MIXED = 0xFFFE
"""Instead of a key group: rows of all of them, in the order in which they became final."""


class Capture:
    """What operators have kept since the last snapshot, on its way into a segment.

    It is taken at once; to encode it takes many small steps.
    """

    def __init__(self) -> None:
        self.segments: dict[int, bytes] = {}
        self._taken: list[Iterator[bytes]] = []
        self._work = self._steps()

    def take(self, kept: Changelog) -> None:
        """Take what an operator has kept. What it keeps from now on is for the next snapshot."""
        self._taken.append(kept.take())

    def step(self) -> bool:
        """Do a little. Returns False when `segments` is complete."""
        return next(self._work, False)

    def _steps(self) -> Iterator[bool]:
        chunks = []
        for chunk in chain.from_iterable(self._taken):
            chunks.append(chunk)
            yield True
        if chunks:
            self.segments = {MIXED: b"".join(chunks)}


def restore(tables: Mapping[str, StateTable], segments: Iterable[bytes]) -> None:
    """Put the rows of segments into the cells of operators. Raises SnapshotDamaged."""
    for _ in restoring(tables, segments):
        pass


def restoring(tables: Mapping[str, StateTable], segments: Iterable[bytes]) -> Iterator[None]:
    """`restore` in steps of about a millisecond."""
    for _ in _restoring(tables, segments):
        yield
    for table in tables.values():
        for number, key in enumerate(list(table)):
            table.reclaim(key)
            if number % MERGED_AT_ONCE == 0:
                yield


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
            if Frozen in set(map(type, map(_last, rows))):
                serialise(table)
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
        for part in unpack_all(segment, keep_frozen):
            if not isinstance(part, tuple):
                raise MalformedMessage("not a part of a segment")
            operator, state, encoded = part
            yield operator, state, decode_rows(encoded)  # type: ignore[misc]
    except (MalformedMessage, TypeError, ValueError) as error:
        raise SnapshotDamaged(f"a segment cannot be read: {error}") from None


def by_group(
    groups: int, segment: bytes, rows_at_once: int = MERGED_AT_ONCE
) -> Iterator[tuple[int, bytes]]:
    """The chunks of a mixed segment by key group: (group, chunk), after a little work each.

    Some chunks are empty, so that no step takes long.
    """
    group_of = GroupCache(groups)
    parted: dict[tuple[int, str, str], list[Row]] = {}
    done = 0
    for operator, state, rows in read_segment(segment):
        for row in rows:
            parted.setdefault((group_of[row[0]], operator, state), []).append(row)
        done += len(rows)
        if done >= rows_at_once:
            done = 0
            yield 0, b""
    for (group, operator, state), rows in parted.items():
        yield group, encoded(operator, state, rows)


def merge(
    flow: Flow, segments: Iterable[bytes], rows_at_once: int = MERGED_AT_ONCE
) -> Iterator[bytes]:
    """One segment that does what a sequence of segments does: its chunks, after a little work each.

    Some chunks are empty, so that no step takes long.
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
        yield from _chunks(name, table, table, rows_at_once)


def as_segment(operator: str, table: StateTable, keys: Collection[object]) -> bytes:
    """A segment with all that an operator holds for these keys; empty if that is nothing."""
    return b"".join(_chunks(operator, table, keys, MERGED_AT_ONCE))


def _chunks(
    operator: str, table: StateTable, keys: Collection[object], rows_at_once: int
) -> Iterator[bytes]:
    for index, state in enumerate(table.declared):
        rows: list[Row] = []
        for key in keys:
            rows += [(key, *slot) for slot in table.states(key)[index].slots()]
            if len(rows) >= rows_at_once:
                yield encoded(operator, state.name, rows)
                rows = []
        if rows:
            yield encoded(operator, state.name, rows)
