"""Segments of snapshots as state again, and joined with each other.

Loading applies the segments of all snapshots in order. Joining does the same, and writes what is
held then as one segment. Both go in small steps.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from operator import itemgetter

from driftline.engine.compared.ledger import LEDGER, Ledger
from driftline.engine.errors import MalformedMessage, SnapshotDamaged
from driftline.engine.flow.flow import Flow
from driftline.engine.keygroups import GroupCache
from driftline.engine.state.changelog import Row, encoded
from driftline.engine.state.managed import ALL, MISSING, StateTable
from driftline.engine.state.serialised import serialise
from driftline.engine.state.values import Frozen, keep_frozen
from driftline.engine.wire.codec import decode_rows, unpack_all
from driftline.engine.wire.messages import checked_columns

_last = itemgetter(-1)

MERGED_AT_ONCE = 1000
"""Rows that one step of a merge reads or writes, about."""


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
            yield operator, state, decode_rows(checked_columns(encoded))  # type: ignore[misc]
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
