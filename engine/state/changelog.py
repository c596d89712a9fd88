"""What an operator keeps for the next snapshot: its final changes, as chunks of a segment.

A *segment* is any number of chunks, one after the other; a chunk is (operator, state, rows) in the
wire format; a row is ``(key, slot, value)``, or ``(key, slot)`` for a removed slot, or ``(key,)``
for a cleared state.

The changes of a large batch become a chunk at once, column by column, while they are in the
processor's caches: from then on only bytes are kept. Those of small batches are kept as rows until
there are many. Of a state whose every change replaces the whole, only the last row of a key is.

Invariant: the rows of a key and state are in the order in which their changes became final.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from operator import attrgetter

from driftline.engine.state.managed import ALL, MISSING, Change, State
from driftline.engine.state.values import pack_row
from driftline.engine.wire.codec import Columns, encode_columns, encode_rows

Row = tuple[object, ...]

MANY = 16
"""Changes of a batch from which on they are worth a chunk of their own."""

EARLY_FROM = 4096
"""Rows from which on it is worth encoding some before a snapshot asks for them."""

ROWS_OF_A_CHUNK = 256
"""Rows that are encoded at a time otherwise: about a tenth of a millisecond."""

_key_of = attrgetter("key")


class Changelog:
    """The final changes of one operator that no snapshot has taken yet."""

    def __init__(self, operator: str, declared: Sequence[State]) -> None:
        self.operator = operator
        self._columnar = len(declared) == 1 and not declared[0].overwrites
        """Whether the changes of a batch may become a chunk at once."""
        self._chunks: list[bytes] = []
        self._rows: dict[str, list[Row]] = {}
        """State -> rows that come after the chunks."""
        self._latest: dict[str, dict[object, Row]] = {}
        """State that is overwritten -> key -> its row."""
        for state in declared:
            if state.overwrites:
                self._latest[state.name] = {}
            else:
                self._rows[state.name] = []

    def keep(self, changes: Sequence[Change]) -> list[object]:
        """Changes are final. Returns the keys that lost something."""
        chunk = self.chunk(changes)
        if chunk is not None:
            self.add(chunk)
            return []
        lost = []
        for state, slot, _, new in changes:
            key = state.key
            if new is not MISSING:
                row: Row = key, slot, new
            else:
                row = (key,) if slot is ALL else (key, slot)
                lost.append(key)
            if state.overwrites:
                self._latest[state.name][key] = row
            else:
                self._rows[state.name].append(row)
        return lost

    def chunk(self, changes: Sequence[Change]) -> bytes | None:
        """Many changes of one batch as a chunk; None if they are few, or something is removed."""
        if not self._columnar or len(changes) < MANY:
            return None
        states, slots, _, news = zip(*changes, strict=True)
        if type(MISSING) in set(map(type, news)):
            return None
        columns = encode_columns(len(states), [list(map(_key_of, states)), slots, news])
        return _packed(self.operator, states[0].name, columns)

    def add(self, chunk: bytes) -> None:
        """A chunk is final."""
        for name, rows in self._rows.items():
            if rows:  # they come before it
                self._chunks.append(self._encoded(name, rows))
                rows.clear()
        self._chunks.append(chunk)

    def encode_early(self, limit: int) -> bool:
        """Encode up to so many rows of each state, if enough wait. Returns whether any were."""
        done = False
        for name, rows in self._rows.items():
            if len(rows) >= EARLY_FROM:
                self._chunks.append(self._encoded(name, rows[:limit]))
                del rows[:limit]
                done = True
        return done

    def take(self) -> Iterator[bytes]:
        """Everything that is kept, from now on by whoever has this: chunks, each made when asked
        for. Nothing is kept here any more."""
        chunks, self._chunks = self._chunks, []
        left = [(name, iter(rows)) for name, rows in self._rows.items()]
        left += [(name, iter(rows.values())) for name, rows in self._latest.items()]
        self._rows = {name: [] for name in self._rows}
        self._latest = {name: {} for name in self._latest}
        return self._taken(chunks, left)

    def _taken(
        self, chunks: list[bytes], left: Iterable[tuple[str, Iterator[Row]]]
    ) -> Iterator[bytes]:
        if chunks:
            yield b"".join(chunks)
        for name, rows in left:
            while part := list(islice(rows, ROWS_OF_A_CHUNK)):
                yield self._encoded(name, part)

    def _encoded(self, state: str, rows: list[Row]) -> bytes:
        return encoded(self.operator, state, rows)


def encoded(operator: str, state: str, rows: Sequence[Row]) -> bytes:
    """A chunk. Raises PayloadError."""
    return _packed(operator, state, encode_rows(rows))


def _packed(operator: str, state: str, columns: Columns) -> bytes:
    return pack_row([(operator, state, columns)])[
        1:
    ]  # one level more: see `engine.wire.codec.pack_nested`
