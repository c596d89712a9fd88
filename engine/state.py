"""Managed state: what a keyed operator remembers, in types that can be undone.

A user declares a state once (``MapState("postings")``) and gets it per key as an argument of the
function. Every mutation leaves one change ``(state, slot, old, new)`` in the journal of the
operator, in O(1). Read backwards the changes undo an element that came too early; read forwards,
once their element is final, they are exactly what a snapshot has to write. So neither a
roll-back nor a snapshot ever copies a state.

Values are immutable: None, bool, int, float, str, bytes and tuples of these. A list that is
changed behind the back of the journal could not be undone; the reference interpreter and the
simulation refuse it (`StrictJournal`).

    >>> total = ReducingState("total", lambda a, b: a + b).bind(Cell("key"), [])
    >>> total.add(2), total.add(3)
    (2, 5)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, Generic, SupportsIndex, TypeVar, cast, overload

from engine.codec import pack
from engine.errors import PayloadError

K = TypeVar("K")
V = TypeVar("V")
D = TypeVar("D")


class _Mark:
    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name


MISSING: Final = _Mark("MISSING")
"""As an old value: the slot was not there; as a new one: it is removed."""

ALL: Final = _Mark("ALL")
"""The slot that stands for the whole state: `clear`, and its undoing."""


class Cell:
    """What an operator keeps for one key: its states and the log of not yet final elements."""

    __slots__ = ("key", "log", "states")

    def __init__(self, key: object) -> None:
        self.key = key
        self.states: tuple[State, ...] = ()
        self.log: list[Entry] = []
        """Applied elements with labels >= the frontier (and some that are settled already but not
        yet cleared away), in label order."""

    def is_empty(self) -> bool:
        """Whether nothing would be lost if the cell were forgotten."""
        return not self.log and all(state.is_empty() for state in self.states)


class State:
    """Base of all state types. A declared state is the pattern that `bind` makes copies of."""

    __slots__ = ("cell", "journal", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.cell = _NOWHERE
        self.journal: list[Change] = []

    def bind(self, cell: Cell, journal: list[Change]) -> State:
        """The state of one key, empty; its changes go to the journal."""
        raise NotImplementedError

    def is_empty(self) -> bool:
        """Whether the state is as it was when the key was first seen."""
        raise NotImplementedError

    def assign(self, slot: object, value: object) -> None:
        """Put a value into a slot without a trace (MISSING: remove it): undo and restore."""
        raise NotImplementedError

    def slots(self) -> Iterator[tuple[object, object]]:
        """Everything it holds, as (slot, value) pairs that `assign` takes."""
        raise NotImplementedError


_NOWHERE: Final = Cell(None)

Change = tuple[State, object, object, object]
"""(state, slot, old value, new value)"""

Entry = tuple[tuple[int, ...], object, list[Change], object]
"""(label, payload, changes, result) of an applied element in the log of a cell."""


class ValueState(State, Generic[V]):
    """One value per key."""

    __slots__ = ("data",)

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.data: object = MISSING

    def bind(self, cell: Cell, journal: list[Change]) -> ValueState[V]:
        bound = ValueState[V](self.name)
        bound.cell, bound.journal = cell, journal
        return bound

    @overload
    def get(self) -> V | None: ...
    @overload
    def get(self, default: D) -> V | D: ...
    def get(self, default: object = None) -> object:
        """The value, or the default where none has been set."""
        return default if self.data is MISSING else self.data

    def set(self, value: V) -> None:
        """Replace the value."""
        self.journal.append((self, None, self.data, value))
        self.data = value

    def clear(self) -> None:
        """Forget the value."""
        if self.data is not MISSING:
            self.journal.append((self, None, self.data, MISSING))
            self.data = MISSING

    def is_empty(self) -> bool:
        return self.data is MISSING

    def assign(self, slot: object, value: object) -> None:
        self.data = value

    def slots(self) -> Iterator[tuple[object, object]]:
        if self.data is not MISSING:
            yield None, self.data


class ReducingState(ValueState[V]):
    """One value per key that additions are folded into by a function of (old, added)."""

    __slots__ = ("reduce",)

    def __init__(self, name: str, reduce: Callable[[V, V], V]) -> None:
        super().__init__(name)
        self.reduce = reduce

    def bind(self, cell: Cell, journal: list[Change]) -> ReducingState[V]:
        bound = ReducingState[V](self.name, self.reduce)
        bound.cell, bound.journal = cell, journal
        return bound

    def add(self, value: V) -> V:
        """Fold a value in and return the new total."""
        old = self.data
        new = value if old is MISSING else self.reduce(cast(V, old), value)
        self.journal.append((self, None, old, new))
        self.data = new
        return new


class ListState(State, Generic[V]):
    """A list per key."""

    __slots__ = ("data",)

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.data: list[V] = []

    def bind(self, cell: Cell, journal: list[Change]) -> ListState[V]:
        bound = ListState[V](self.name)
        bound.cell, bound.journal = cell, journal
        return bound

    def append(self, value: V) -> None:
        """Add at the end."""
        self.journal.append((self, len(self.data), MISSING, value))
        self.data.append(value)

    def pop(self) -> V:
        """Remove and return the last one. Raises IndexError when there is none."""
        value = self.data.pop()
        self.journal.append((self, len(self.data), value, MISSING))
        return value

    def clear(self) -> None:
        """Remove everything, in O(1)."""
        if self.data:
            self.journal.append((self, ALL, self.data, MISSING))
            self.data = []

    def __getitem__(self, index: SupportsIndex) -> V:
        return self.data[index]

    def __setitem__(self, index: SupportsIndex, value: V) -> None:
        position = range(len(self.data))[index]
        self.journal.append((self, position, self.data[position], value))
        self.data[position] = value

    def __len__(self) -> int:
        return len(self.data)

    def __iter__(self) -> Iterator[V]:
        return iter(self.data)

    def is_empty(self) -> bool:
        return not self.data

    def assign(self, slot: object, value: object) -> None:
        data = self.data
        if slot is ALL:
            self.data = [] if value is MISSING else cast(list[V], value)
            return
        index = cast(int, slot)
        if value is MISSING:
            del data[index:]
        elif index < len(data):
            data[index] = cast(V, value)
        else:  # a restore may meet a later slot first
            data.extend([cast(V, MISSING)] * (index - len(data)))
            data.append(cast(V, value))

    def slots(self) -> Iterator[tuple[object, object]]:
        return iter(enumerate(self.data))


class MapState(State, Generic[K, V]):
    """A map per key.

    Iteration is in the order of the encoded keys, O(n log n): the order of insertion would differ
    after an undo or a recovery.
    """

    __slots__ = ("data",)

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.data: dict[K, V] = {}

    def bind(self, cell: Cell, journal: list[Change]) -> MapState[K, V]:
        bound = MapState[K, V](self.name)
        bound.cell, bound.journal = cell, journal
        return bound

    def __getitem__(self, key: K) -> V:
        return self.data[key]

    def __setitem__(self, key: K, value: V) -> None:
        data = self.data
        self.journal.append((self, key, data.get(key, MISSING), value))
        data[key] = value

    def __delitem__(self, key: K) -> None:
        self.journal.append((self, key, self.data.pop(key), MISSING))

    @overload
    def get(self, key: K) -> V | None: ...
    @overload
    def get(self, key: K, default: D) -> V | D: ...
    def get(self, key: K, default: object = None) -> object:
        """The value of a key, or the default."""
        return self.data.get(key, default)

    def clear(self) -> None:
        """Remove everything, in O(1)."""
        if self.data:
            self.journal.append((self, ALL, self.data, MISSING))
            self.data = {}

    def __contains__(self, key: object) -> bool:
        return key in self.data

    def __len__(self) -> int:
        return len(self.data)

    def __iter__(self) -> Iterator[K]:
        return iter(sorted(self.data, key=pack))

    def items(self) -> Iterator[tuple[K, V]]:
        """(key, value) pairs in the order of the encoded keys."""
        return ((key, self.data[key]) for key in self)

    def is_empty(self) -> bool:
        return not self.data

    def assign(self, slot: object, value: object) -> None:
        if slot is ALL:
            self.data = {} if value is MISSING else cast(dict[K, V], value)
        elif value is MISSING:
            self.data.pop(cast(K, slot), None)
        else:
            self.data[cast(K, slot)] = cast(V, value)

    def slots(self) -> Iterator[tuple[object, object]]:
        return iter(self.data.items())


class CellTable(dict[object, Cell]):
    """key -> cell; a key that is not there yet gets a fresh one. A hit is a plain dict hit."""

    def __init__(self, declared: tuple[State, ...], journal: list[Change]) -> None:
        super().__init__()
        self.declared = declared
        self.journal = journal

    def __missing__(self, key: object) -> Cell:
        cell = self[key] = Cell(key)
        cell.states = tuple(state.bind(cell, self.journal) for state in self.declared)
        return cell


def undo(changes: list[Change]) -> None:
    """Take changes back, the last one first."""
    for state, slot, old, _ in reversed(changes):
        state.assign(slot, old)


class StrictJournal(list[Change]):
    """A journal that refuses values which could change behind its back. Slow: for tests."""

    def append(self, change: Change) -> None:
        state, slot, _, new = change
        if slot is not ALL:
            for value in (slot, new):
                if value is not MISSING and not _is_immutable(value):
                    raise PayloadError(
                        f"state {state.name!r} would hold {value!r}: use tuples instead of lists, "
                        "and MapState or ListState for collections that change"
                    )
        super().append(change)


def _is_immutable(value: object) -> bool:
    if type(value) is tuple:
        return all(map(_is_immutable, value))
    return value is None or type(value) in (bool, int, float, str, bytes)
