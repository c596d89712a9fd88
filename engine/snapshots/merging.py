"""Restore state from the segments of a snapshot, and merge segments into one.

Restoring applies the rows of all segments, in order. Merging applies them to empty states, and
writes the result as one segment. Both are generators that work in small steps.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from operator import itemgetter

from driftline.engine.errors import MalformedMessage, PayloadError, SnapshotDamaged
from driftline.engine.flow.flow import Flow
from driftline.engine.keygroups import GroupCache, Owners, exact_keys
from driftline.engine.snapshots.ledger import LEDGER, Ledger
from driftline.engine.state.changelog import Row, encode_chunk
from driftline.engine.state.managed import ALL, MISSING
from driftline.engine.state.table import StateTable, serialise
from driftline.engine.state.values import Frozen, decode_frozen
from driftline.engine.wire.codec import decode_rows, unpack_all

_last = itemgetter(-1)

MERGE_STEP_ROWS = 1000
"""Approximate number of rows that one step of a merge reads or writes."""


def restore(tables: Mapping[str, StateTable], segments: Iterable[bytes]) -> None:
    """Apply the rows of segments to states. `tables`: by operator. Raises SnapshotDamaged."""
    for _ in restore_in_steps(tables, segments):
        pass


def restore_in_steps(tables: Mapping[str, StateTable], segments: Iterable[bytes]) -> Iterator[None]:
    """Run `restore` in steps of one chunk, about a millisecond each: yield after each step."""
    for _ in _restore_and_count(tables, segments):
        yield


def restore_owned_rows(
    tables: Mapping[str, StateTable], segment: bytes, owners: Owners, place: int
) -> Iterator[bytes]:
    """Restore, in steps, the rows of a segment whose keys a node owns.

    `place`: the index of the node in the layout. Yield the restored rows of each step as a chunk,
    or b"" if the step has none. Raises SnapshotDamaged.
    """
    states_by_name = _states_by_name(tables)
    for operator, name, rows in read_segment(segment):
        row_owners = owners.owners_of([row[0] for row in rows])
        mine = [row for row, owner in zip(rows, row_owners, strict=True) if owner == place]
        _apply(states_by_name, operator, name, mine)
        yield encode_chunk(operator, name, mine) if mine else b""


def _restore_and_count(
    tables: Mapping[str, StateTable], segments: Iterable[bytes]
) -> Iterator[int]:
    """Run `restore` in steps of one chunk. Yield the number of rows of each step."""
    states_by_name = _states_by_name(tables)
    for segment in segments:
        for operator, name, rows in read_segment(segment):
            _apply(states_by_name, operator, name, rows)
            yield len(rows)


_StatesByName = Mapping[tuple[str, str], tuple[StateTable, int]]
"""(operator, state) -> the table of the operator, and the index of the state in it."""


def _states_by_name(tables: Mapping[str, StateTable]) -> _StatesByName:
    return {
        (name, state.name): (table, index)
        for name, table in tables.items()
        for index, state in enumerate(table.declared)
    }


def _apply(states_by_name: _StatesByName, operator: str, name: str, rows: Sequence[Row]) -> None:
    """Apply rows to a state. Raises SnapshotDamaged if the flow has no such state."""
    if (operator, name) not in states_by_name:
        raise SnapshotDamaged(f"state {name!r} of operator {operator!r} is not in the flow")
    table, index = states_by_name[operator, name]
    if Frozen in set(map(type, map(_last, rows))):
        serialise(table)
    for row in rows:
        state = table.states(row[0])[index]
        if len(row) == 3:
            state.assign(row[1], row[2])
        else:
            state.assign(row[1] if len(row) == 2 else ALL, MISSING)
            table.perhaps_empty.append(row[0])
    table.reclaim()


def read_segment(segment: bytes) -> Iterator[tuple[str, str, list[Row]]]:
    """Yield the chunks of a segment, as (operator, state, rows).

    Keys and slots of the rows are in their exact form (`exact_key`). Raises SnapshotDamaged.
    """
    try:
        for chunk in unpack_all(segment, decode_frozen):
            if not isinstance(chunk, tuple):
                raise MalformedMessage("not a chunk")
            operator, state, encoded = chunk
            rows: list[Row] = decode_rows(encoded)  # type: ignore[assignment]
            yield operator, state, _with_exact_keys(rows)
    except (MalformedMessage, PayloadError, TypeError, ValueError) as error:
        raise SnapshotDamaged(f"a segment cannot be read: {error}") from None


def _with_exact_keys(rows: list[Row]) -> list[Row]:
    """Return rows with keys and slots in their exact form; the same list if nothing changes."""
    for column in (0, 1):
        plain = [row[column] for row in rows if len(row) > column]
        exact = exact_keys(plain)
        if exact is not plain:
            exact_values = iter(exact)
            rows = [
                (*row[:column], next(exact_values), *row[column + 1 :])
                if len(row) > column
                else row
                for row in rows
            ]
    return rows


def by_group(
    groups: int, segment: bytes, rows_at_once: int = MERGE_STEP_ROWS
) -> Iterator[tuple[int, bytes]]:
    """Split a segment of all key groups; yield (group, chunk), each chunk of one group.

    `groups`: the flow's number of key groups. Also yield (0, b"") about every `rows_at_once` rows,
    so that steps are short. Raises SnapshotDamaged.
    """
    group_of = GroupCache(groups)
    rows_by_state: dict[tuple[int, str, str], list[Row]] = {}
    rows_since_yield = 0
    for operator, state, rows in read_segment(segment):
        for row in rows:
            rows_by_state.setdefault((group_of[row[0]], operator, state), []).append(row)
        rows_since_yield += len(rows)
        if rows_since_yield >= rows_at_once:
            rows_since_yield = 0
            yield 0, b""
    for (group, operator, state), rows in rows_by_state.items():
        yield group, encode_chunk(operator, state, rows)


def merge(
    flow: Flow, segments: Iterable[bytes], rows_at_once: int = MERGE_STEP_ROWS
) -> Iterator[bytes]:
    """Yield the chunks of one segment that restores the same state as these segments, in order.

    Also yield b"" about every `rows_at_once` rows, so that steps are short. Raises SnapshotDamaged.
    """
    tables = {v.name: StateTable(v.states, []) for v in flow.vertices if v.is_keyed}
    tables[LEDGER] = Ledger().table
    rows_since_yield = 0
    for rows_read in _restore_and_count(tables, segments):
        rows_since_yield += rows_read
        if rows_since_yield >= rows_at_once:
            rows_since_yield = 0
            yield b""
    for name, table in tables.items():
        yield from _chunks(name, table, table, rows_at_once)


def encode_segment(operator: str, table: StateTable, keys: Collection[object]) -> bytes:
    """Encode the states of an operator for these keys as a segment; b"" if all are empty."""
    return b"".join(_chunks(operator, table, keys, MERGE_STEP_ROWS))


def _chunks(
    operator: str, table: StateTable, keys: Collection[object], rows_at_once: int
) -> Iterator[bytes]:
    for index, state in enumerate(table.declared):
        rows: list[Row] = []
        for key in keys:
            rows += [(key, *slot) for slot in table.states(key)[index].slots()]
            if len(rows) >= rows_at_once:
                yield encode_chunk(operator, state.name, rows)
                rows = []
        if rows:
            yield encode_chunk(operator, state.name, rows)
