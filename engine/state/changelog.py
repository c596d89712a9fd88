"""Changelog of an operator: its final changes that no snapshot contains yet.

A *chunk* is (operator, state, rows) in the wire format; a *segment* is a concatenation of chunks.
A row is ``(key, slot, value)``, or ``(key, slot)`` for a removed slot, or ``(key,)`` for a cleared
state.

The changes of a large batch are usually encoded as a chunk at once, while they are in the CPU
caches (`Changelog.encode_batch`). Other changes stay rows until a snapshot, or until there are many
rows. If every change overwrites a state (`State.overwrites`), only the last row of each key is
stored.

Invariant: the rows of a key and state are in the order in which their changes became final.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from operator import attrgetter

from driftline.engine.state.managed import (
    ALL,
    CHANGE_ITEMS,
    MISSING,
    State,
    UndoLog,
    changes_of,
    columns_of,
)
from driftline.engine.state.values import pack_row
from driftline.engine.wire.codec import Columns, encode_columns, encode_rows

Row = tuple[object, ...]
"""One change, as described above; keys and slots are in their exact form (`exact_key`)."""

CHUNK_CHANGES_MIN = 16
"""A batch with at least this many changes gets its own chunk."""

EARLY_ROWS_MIN = 4096
"""`encode_early` encodes rows only of states with at least this many rows."""

CHUNK_ROWS_MAX = 256
"""Maximum number of rows in a chunk that `take` encodes: about 0.1 ms of work."""

_key_of = attrgetter("key")


class Changelog:
    """Final changes of one operator that no snapshot contains yet."""

    def __init__(self, operator: str, declared: Sequence[State]) -> None:
        self.operator = operator
        self._encodes_batches = len(declared) == 1 and not declared[0].overwrites
        """Whether the changes of a large batch may become a chunk: only if the operator has one
        state, of a type that changes do not overwrite."""
        self._chunks: list[bytes] = []
        self.bytes = 0
        """Size of the encoded changes, in bytes."""
        self._rows: dict[str, list[Row]] = {}
        """State whose changes do not overwrite it -> rows, which are later than all chunks."""
        self._latest: dict[str, dict[object, Row]] = {}
        """State whose changes overwrite it -> key -> last row."""
        for state in declared:
            if state.overwrites:
                self._latest[state.name] = {}
            else:
                self._rows[state.name] = []

    def add_changes(self, changes: UndoLog) -> list[object]:
        """Add final changes. Return the keys with a removed slot or a cleared state."""
        chunk = self.encode_batch(changes)
        if chunk is not None:
            self.add(chunk)
            return []
        keys_with_removals = []
        for state, slot, _, new in changes_of(changes):
            key = state.key
            if new is not MISSING:
                row: Row = key, slot, new
            else:
                row = (key,) if slot is ALL else (key, slot)
                keys_with_removals.append(key)
            if state.overwrites:
                self._latest[state.name][key] = row
            else:
                self._rows[state.name].append(row)
        return keys_with_removals

    def encode_batch(self, changes: UndoLog) -> bytes | None:
        """Encode the changes of one batch as a chunk.

        Return None if the batch has fewer than `CHUNK_CHANGES_MIN` changes or contains a removal.
        Return None, too, if the operator has several states, or if every change overwrites its
        state.
        """
        if not self._encodes_batches or len(changes) < CHUNK_CHANGES_MIN * CHANGE_ITEMS:
            return None
        states, slots, _, news = columns_of(changes)
        if type(MISSING) in set(map(type, news)):
            return None
        columns = encode_columns(len(states), [list(map(_key_of, states)), slots, news])
        return _packed(self.operator, states[0].name, columns)

    def add(self, chunk: bytes) -> None:
        """Add a chunk that `encode_batch` made of final changes."""
        for name, rows in self._rows.items():
            if rows:  # these changes are earlier than the chunk
                self._append(self._encoded(name, rows))
                rows.clear()
        self._append(chunk)

    def encode_early(self, limit: int) -> bool:
        """Encode the first `limit` rows of each state with at least `EARLY_ROWS_MIN` rows.

        Return whether there was such a state.
        """
        encoded_any = False
        for name, rows in self._rows.items():
            if len(rows) >= EARLY_ROWS_MIN:
                self._append(self._encoded(name, rows[:limit]))
                del rows[:limit]
                encoded_any = True
        return encoded_any

    def take(self) -> Iterator[bytes]:
        """Empty the changelog. Return its changes as lazily encoded chunks."""
        chunks, self._chunks, self.bytes = self._chunks, [], 0
        unencoded = [(name, iter(rows)) for name, rows in self._rows.items()]
        unencoded += [(name, iter(rows.values())) for name, rows in self._latest.items()]
        self._rows = {name: [] for name in self._rows}
        self._latest = {name: {} for name in self._latest}
        return self._encode_lazily(chunks, unencoded)

    def _append(self, chunk: bytes) -> None:
        self._chunks.append(chunk)
        self.bytes += len(chunk)

    def _encode_lazily(
        self, chunks: list[bytes], unencoded: Iterable[tuple[str, Iterator[Row]]]
    ) -> Iterator[bytes]:
        if chunks:
            yield b"".join(chunks)
        for name, rows in unencoded:
            while part := list(islice(rows, CHUNK_ROWS_MAX)):
                yield self._encoded(name, part)

    def _encoded(self, state: str, rows: list[Row]) -> bytes:
        return encode_chunk(self.operator, state, rows)


def encode_chunk(operator: str, state: str, rows: Sequence[Row]) -> bytes:
    """Encode rows as a chunk. Raises PayloadError if a value in them cannot be stored."""
    return _packed(operator, state, encode_rows(rows))


def _packed(operator: str, state: str, columns: Columns) -> bytes:
    # The enclosing list, whose byte is dropped, leaves room for one more level of nesting: see
    # `engine.wire.codec.pack_nested`.
    return pack_row([(operator, state, columns)])[1:]
