"""Managed state: what a keyed operator remembers, in types that can be undone.

A user declares a state once and gets it per key as an argument of the function, of the same class.
The declaration says for type checkers what is in it, ``MapState[str, int]("postings")``, or leaves
that to the annotation of the argument: ``MapState("postings")``.

Every mutation leaves one change ``(state, slot, old, new)`` in the undo_log of the operator, in
O(1). Read backwards the changes undo an element that came too early; read forwards, once their
element is final, they are exactly what a snapshot has to write. So neither a roll-back nor a
snapshot ever copies a state.

Immutable values (None, bool, int, float, str, bytes and tuples of these) are kept as they are. A
list or a dict that a function went on to change could not be undone: once an operator puts one,
its states are `serialised` (`engine.state.serialised`), and keep such values as bytes.

    >>> table = StateTable((ReducingState("total", lambda a, b: a + b),), [])
    >>> total = table["key"]
    >>> total.add(2), total.add(3)
    (2, 5)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Final, Generic, Self, SupportsIndex, TypeVar, cast, overload

from driftline.engine.state.values import slot_of
from driftline.engine.wire.codec import order_of

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


class State:
    """Base of all state types. A declared state is the pattern for those of the keys."""

    __slots__ = ()

    name: str
    key: object
    """The key that it is the state of."""
    undo_log: list[Change]
    """Where its changes go."""
    overwrites = False
    """Whether every change replaces the whole state, so that a snapshot needs only the last."""

    def fresh(self, key: object, undo_log: list[Change]) -> State:
        """An empty state like this one, of a key."""
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


Change = tuple[State, object, object, object]
"""(state, slot, old value, new value)"""


class ValueState(State, Generic[V]):
    """One value per key."""

    __slots__ = ("data", "key", "name", "undo_log")

    overwrites = True

    def __init__(self, name: str) -> None:
        self.name = name
        self.data: object = MISSING

    def fresh(self, key: object, undo_log: list[Change]) -> ValueState[V]:
        made = type(self)(self.name)
        made.key, made.undo_log = key, undo_log
        return made

    @overload
    def get(self) -> V | None: ...
    @overload
    def get(self, default: D) -> V | D: ...
    def get(self, default: object = None) -> object:
        """The value, or the default where none has been set."""
        return default if self.data is MISSING else self.data

    def set(self, value: V) -> None:
        """Replace the value."""
        self.undo_log.append((self, None, self.data, value))
        self.data = value

    def clear(self) -> None:
        """Forget the value."""
        if self.data is not MISSING:
            self.undo_log.append((self, None, self.data, MISSING))
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

    def fresh(self, key: object, undo_log: list[Change]) -> ReducingState[V]:
        made = type(self)(self.name, self.reduce)
        made.key, made.undo_log = key, undo_log
        return made

    def add(self, value: V) -> V:
        """Fold a value in and return the new total."""
        old = self.data
        new = value if old is MISSING else self.reduce(cast(V, old), value)
        self.undo_log.append((self, None, old, new))
        self.data = new
        return new


class ListState(State, Generic[V]):
    """A list per key."""

    __slots__ = ("data", "key", "name", "undo_log")

    def __init__(self, name: str) -> None:
        self.name = name
        self.data: list[V] = []

    def fresh(self, key: object, undo_log: list[Change]) -> ListState[V]:
        made = type(self)(self.name)
        made.key, made.undo_log = key, undo_log
        return made

    def append(self, value: V) -> None:
        """Add at the end."""
        self.undo_log.append((self, len(self.data), MISSING, value))
        self.data.append(value)

    def extend(self, values: Iterable[V]) -> None:
        """Add several at the end."""
        for value in values:
            self.append(value)

    def pop(self) -> V:
        """Remove and return the last one. Raises IndexError when there is none."""
        value = self.data.pop()
        self.undo_log.append((self, len(self.data), value, MISSING))
        return value

    def clear(self) -> None:
        """Remove everything, in O(1)."""
        if self.data:
            self.undo_log.append((self, ALL, self.data, MISSING))
            self.data = []

    @overload
    def __getitem__(self, index: SupportsIndex) -> V: ...
    @overload
    def __getitem__(self, index: slice) -> list[V]: ...
    def __getitem__(self, index: SupportsIndex | slice) -> V | list[V]:
        return self.data[index]

    def __setitem__(self, index: SupportsIndex | slice, value: V) -> None:
        if isinstance(index, slice):
            raise TypeError("a slice of a ListState cannot be set: set its items one by one")
        position = range(len(self.data))[index]
        self.undo_log.append((self, position, self.data[position], value))
        self.data[position] = value

    def __len__(self) -> int:
        return len(self.data)

    def __iter__(self) -> Iterator[V]:
        return iter(self.data[:])  # as it is now, whatever is done to it meanwhile

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


class MapState(dict[K, V], State):
    """A map per key: a dictionary, read as fast as any, whose changes leave a trace.

    Iteration is in the order of the encoded keys, O(n log n): the order of insertion would differ
    after an undo or a recovery. `popitem` takes the last one in that order.
    """

    __slots__ = ("key", "name", "undo_log")

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def fresh(self, key: object, undo_log: list[Change]) -> MapState[K, V]:
        made = self.__new__(type(self))  # an empty dictionary needs no more
        made.name = self.name
        made.key, made.undo_log = key, undo_log
        return made

    def __setitem__(self, key: K, value: V) -> None:
        # One look-up for a key that is new: this is the hot path of the whole system.
        before = len(self)
        old = _dict_setdefault(self, key, value)
        if len(self) > before:
            self.undo_log.append((self, key, MISSING, value))
        else:
            self.undo_log.append((self, key, old, value))
            _dict_set(self, key, value)

    def __delitem__(self, key: K) -> None:
        self.remove(key, self[key])

    def remove(self, key: K, value: object) -> None:
        """Remove a key that has this value."""
        if type(key) not in _UNLIKE_OTHERS:  # to undo it the key is needed that was there
            key = cast(K, slot_of(key))
        self.undo_log.append((self, key, value, MISSING))
        dict.__delitem__(self, key)

    def clear(self) -> None:
        """Remove everything."""
        if self:
            self.undo_log.append((self, ALL, dict(dict.items(self)), MISSING))
            dict.clear(self)

    def __iter__(self) -> Iterator[K]:
        return iter(sorted(dict.__iter__(self), key=order_of))

    def __reversed__(self) -> Iterator[K]:
        return reversed(list(self))

    def __repr__(self) -> str:
        return f"MapState({dict(self.items())!r})"

    def keys(self) -> list[K]:  # type: ignore[override]
        """The keys in the order of their encoding."""
        return list(self)

    def values(self) -> list[V]:  # type: ignore[override]
        """The values in the order of the encoded keys."""
        return [self[key] for key in self]

    def items(self) -> list[tuple[K, V]]:  # type: ignore[override]
        """(key, value) pairs in the order of the encoded keys."""
        return [(key, self[key]) for key in self]

    @overload
    def get(self, key: K, default: None = None) -> V | None: ...
    @overload
    def get(self, key: K, default: V) -> V: ...
    @overload
    def get(self, key: K, default: D) -> V | D: ...
    def get(self, key: K, default: object = None) -> object:
        """The value of a key, or the default where there is none."""
        return _dict_get(self, key, default)

    # All that changes a dictionary goes through the methods above.
    @overload
    def pop(self, key: K, /) -> V: ...
    @overload
    def pop(self, key: K, default: V, /) -> V: ...
    @overload
    def pop(self, key: K, default: D, /) -> V | D: ...
    def pop(self, key: K, /, *default: object) -> object:
        """Remove a key and return its value, or the default. Raises KeyError if there is none."""
        if default and key not in self:
            (value,) = default
            return value
        found = self[key]
        del self[key]
        return found

    def popitem(self) -> tuple[K, V]:
        """Remove and return the last item. Raises KeyError where there is none."""
        if not self:
            raise KeyError("popitem of an empty map")
        key = max(dict.__iter__(self), key=order_of)
        return key, self.pop(key)

    def setdefault(self, key: K, default: V, /) -> V:
        """The value of a key, which becomes the default if there is none."""
        if key not in self:
            self[key] = default
        return self[key]

    def update(  # type: ignore[override]
        self, other: Mapping[K, V] | Iterable[tuple[K, V]] = (), /, **named: V
    ) -> None:
        """Put all the items of another map, or pairs, and those given by name."""
        for key, value in dict(other).items():
            self[key] = value
        for name, value in named.items():
            self[cast(K, name)] = value

    def __ior__(self, other: Mapping[K, V] | Iterable[tuple[K, V]], /) -> Self:  # type: ignore[override, misc]
        self.update(other)
        return self

    def copy(self) -> dict[K, V]:
        """A dictionary of its own, in the order of the encoded keys."""
        return dict(self.items())

    def __deepcopy__(self, memo: dict[int, object]) -> dict[K, V]:
        return deepcopy(self.copy(), memo)  # an output that is the state itself must not change

    def is_empty(self) -> bool:
        return not self

    def assign(self, slot: object, value: object) -> None:
        if slot is ALL:
            dict.clear(self)
            if value is not MISSING:
                dict.update(self, cast(dict[K, V], value))
        elif value is MISSING:
            dict.pop(self, cast(K, slot), None)
        else:
            _dict_set(self, cast(K, slot), cast(V, value))

    def slots(self) -> Iterator[tuple[object, object]]:
        return iter(dict.items(self))


_UNLIKE_OTHERS = frozenset((str, int, bytes))
"""Types of keys that are what they equal in a map."""

_dict_get = dict.get
_dict_set = dict.__setitem__
_dict_setdefault = dict.setdefault


class States(tuple[State, ...]):
    """The states of a key of an operator that has several."""


class StateTable(dict[object, State | States]):
    """key -> what the user's function gets beside the element: its state, or a tuple of them.

    A new key gets fresh states; a hit is a plain dict hit. Once it is `serialised`, so are they.
    """

    def __init__(self, declared: tuple[State, ...], undo_log: list[Change]) -> None:
        super().__init__()
        self.declared = declared
        self.undo_log = undo_log
        self.convert: Callable[[State], None] | None = None
        """What makes a new state serialised, if they are to be."""

    def __missing__(self, key: object) -> State | States:
        found: State | States
        if len(self.declared) == 1:
            found = self.declared[0].fresh(key, self.undo_log)
        else:
            found = States(state.fresh(key, self.undo_log) for state in self.declared)
        self[key] = found
        if self.convert is not None:
            for state in self.states(key):
                self.convert(state)
        return found

    def states(self, key: object) -> tuple[State, ...]:
        """The states of a key, in the order of their declaration."""
        found = self[key]
        return found if isinstance(found, States) else (found,)

    def reclaim(self, key: object) -> None:
        """Forget a key with nothing in its states."""
        if key in self and all(state.is_empty() for state in self.states(key)):
            del self[key]


def undo(changes: Sequence[Change]) -> None:
    """Take changes back, the last one first."""
    for state, slot, old, _ in reversed(changes):
        state.assign(slot, old)


def show_as(cls: type, declared: type[State]) -> None:
    """Let a class look like a declared one in errors: their texts may become outputs."""
    cls.__name__ = cls.__qualname__ = declared.__name__
    for name, member in vars(cls).items():
        if callable(member) and hasattr(member, "__qualname__"):
            member.__qualname__ = f"{declared.__name__}.{name}"
