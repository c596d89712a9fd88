"""Managed state of keyed operators, in types whose changes can be undone.

A user declares a state once. The user function receives the state of the current key as an
argument of the same class. The user may give the type of the values in the declaration,
``MapState[str, int]("postings")``. With ``MapState("postings")``, the annotation of the argument
gives the type.

Every mutation appends its changes ``(state, slot, old, new)`` to the undo log of the operator:
usually one, in O(1). Read backwards, the changes undo an element that was applied too early. Read
forwards, once the element is final, they become rows of a snapshot (`engine.state.changelog`). So
neither an undo nor a snapshot copies a state.

Immutable values (None, bool, int, float, str, bytes and tuples of these) are stored as they are. An
in-place change of a list or a dict would bypass the undo log. So once an operator stores a mutable
value, its states are *serialised* (`engine.state.table`): they store mutable values as bytes.

    >>> undo_log: UndoLog = []
    >>> total = ReducingState("total", lambda a, b: a + b).for_key("key", undo_log)
    >>> total.add(2), total.add(3)
    (2, 5)
    >>> undo(undo_log[CHANGE_ITEMS:])
    >>> total.get()
    2
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import deepcopy
from typing import Final, Generic, Self, SupportsIndex, TypeVar, cast, overload

from driftline.engine.event_time import Duration, parse_duration
from driftline.engine.keygroups import EXACT, ExactKey, exact_key
from driftline.engine.wire.codec import pack

K = TypeVar("K")
V = TypeVar("V")
D = TypeVar("D")


class _Sentinel:
    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name


MISSING: Final = _Sentinel("MISSING")
"""As an old value: the slot did not exist. As a new value: the change removes the slot."""

ALL: Final = _Sentinel("ALL")
"""Slot that stands for the whole state, in the changes of `clear`."""


class ExpiringName(str):
    """Name of a state with a time to live; the states of all keys share this object."""

    __slots__ = ("ttl",)

    ttl: int
    """Time to live, in microseconds."""


def _named(name: str, ttl: Duration | None) -> str:
    """Return the name of a declared state: an ExpiringName if it has a time to live.

    Raises FlowError if `ttl` is not a valid duration.
    """
    if ttl is None:
        return name
    expiring = ExpiringName(name)
    expiring.ttl = parse_duration(ttl, f"ttl of state {name!r}", least=1)
    return expiring


def ttl_of(state: State) -> int | None:
    """Return the time to live of a state's values, in microseconds, or None."""
    return state.name.ttl if isinstance(state.name, ExpiringName) else None


class PlainCopies:
    """Base of states, here and in the reference interpreter, whose copies are plain values.

    If a copy was a state, its changes would be logged as changes of the original.
    """

    __slots__ = ()

    def copy(self) -> object:
        """Return a plain copy. Raises TypeError if the type has none."""
        raise TypeError(f"a {type(self).__name__} cannot be copied: copy its value")

    def __copy__(self) -> object:
        return self.copy()

    def __deepcopy__(self, memo: dict[int, object]) -> object:
        return deepcopy(self.copy(), memo)


class State(PlainCopies):
    """Base of all state types. A declared state is the template for the states of keys."""

    __slots__ = ()

    name: str
    """Name in the declaration, unique within an operator."""
    key: object
    """Key that the state belongs to."""
    undo_log: UndoLog
    """Undo log of the operator."""
    overwrites = False
    """Whether every change replaces the whole state, so a snapshot needs only the last change."""

    def for_key(self, key: object, undo_log: UndoLog) -> State:
        """Return an empty state with the same declaration, for a key."""
        raise NotImplementedError

    def is_empty(self) -> bool:
        """Return whether the state has no value."""
        raise NotImplementedError

    def assign(self, slot: object, value: object) -> None:
        """Set a slot without logging a change, for an undo or a restore.

        `slot`: ALL for the whole state; `value`: MISSING removes the slot.
        """
        raise NotImplementedError

    def slots(self) -> Iterator[tuple[object, object]]:
        """Return the contents of the state, as (slot, value) pairs for `assign`."""
        raise NotImplementedError


Change = tuple[State, object, object, object]
"""(state, slot, old value, new value). A slot is an index of a list, a key of a map (its exact
form, see `exact_key`), None for a single value, or ALL."""

UndoLog = list[object]
"""Changes, oldest first, in a flat list: the items of the first change, then those of the second.

A list of tuples would cost the hot path an allocation for each change.
"""

CHANGE_ITEMS = 4
"""Number of items of a change."""


def columns_of(undo_log: UndoLog) -> tuple[list[State], list[object], list[object], list[object]]:
    """Return the states, the slots, the old values and the new values of changes."""
    states = cast("list[State]", undo_log[::CHANGE_ITEMS])
    return states, undo_log[1::CHANGE_ITEMS], undo_log[2::CHANGE_ITEMS], undo_log[3::CHANGE_ITEMS]


def changes_of(undo_log: UndoLog) -> Iterator[Change]:
    """Return changes one by one, oldest first."""
    return zip(*columns_of(undo_log), strict=True)


class ValueState(State, Generic[V]):
    """One value for each key.

    Args:
        name: Name of the state; unique within an operator.
        ttl: Time to live: the value is dropped this long after its last change, in event
            time. The sources of the operator then need event times.
    """

    __slots__ = ("data", "key", "name", "undo_log")

    overwrites = True

    def __init__(self, name: str, *, ttl: Duration | None = None) -> None:
        self.name = _named(name, ttl)
        self.data: object = MISSING

    def for_key(self, key: object, undo_log: UndoLog) -> ValueState[V]:
        state = type(self)(self.name)
        state.key, state.undo_log = key, undo_log
        return state

    @overload
    def get(self) -> V | None: ...
    @overload
    def get(self, default: D) -> V | D: ...
    def get(self, default: object = None) -> object:
        """Return the value, or the default if there is none."""
        return default if self.data is MISSING else self.data

    def set(self, value: V) -> None:
        """Replace the value."""
        self.undo_log.extend((self, None, self.data, value))
        self.data = value

    def clear(self) -> None:
        """Remove the value."""
        if self.data is not MISSING:
            self.undo_log.extend((self, None, self.data, MISSING))
            self.data = MISSING

    def is_empty(self) -> bool:
        return self.data is MISSING

    def assign(self, slot: object, value: object) -> None:
        self.data = value

    def slots(self) -> Iterator[tuple[object, object]]:
        if self.data is not MISSING:
            yield None, self.data


class ReducingState(ValueState[V]):
    """One value for each key, and a function that combines it with an added value.

    Args:
        name: Name of the state; unique within an operator.
        reduce: Takes the old value and the added one, and returns the new value.
        ttl: Time to live: the value is dropped this long after its last change, in event
            time. The sources of the operator then need event times.
    """

    __slots__ = ("reduce",)

    def __init__(
        self, name: str, reduce: Callable[[V, V], V], *, ttl: Duration | None = None
    ) -> None:
        super().__init__(name, ttl=ttl)
        self.reduce = reduce

    def for_key(self, key: object, undo_log: UndoLog) -> ReducingState[V]:
        state = type(self)(self.name, self.reduce)
        state.key, state.undo_log = key, undo_log
        return state

    def add(self, value: V) -> V:
        """Set the value to `reduce(old, value)`, or to `value` if there is none; return it."""
        old = self.data
        new = value if old is MISSING else self.reduce(cast(V, old), value)
        self.undo_log.extend((self, None, old, new))
        self.data = new
        return new


class ListState(State, Generic[V]):
    """A list for each key.

    Args:
        name: Name of the state; unique within an operator.
        ttl: Time to live: the list is dropped this long after its last change, in event
            time. The sources of the operator then need event times.
    """

    __slots__ = ("data", "key", "name", "undo_log")

    def __init__(self, name: str, *, ttl: Duration | None = None) -> None:
        self.name = _named(name, ttl)
        self.data: list[V] = []

    def for_key(self, key: object, undo_log: UndoLog) -> ListState[V]:
        state = type(self)(self.name)
        state.key, state.undo_log = key, undo_log
        return state

    def append(self, value: V) -> None:
        """Add a value at the end."""
        self.undo_log.extend((self, len(self.data), MISSING, value))
        self.data.append(value)

    def extend(self, values: Iterable[V]) -> None:
        """Add several values at the end."""
        for value in values:
            self.append(value)

    def pop(self, index: SupportsIndex = -1) -> V:
        """Remove and return the last value, or the value at an index.

        All values after the index move, and each is logged as a change.

        Raises:
            IndexError: There is no such value.
        """
        if index == -1:
            value = self.data.pop()
            self.undo_log.extend((self, len(self.data), value, MISSING))
            return value
        new = self.data[:]
        value = new.pop(index)
        self._replace(new)
        return value

    def __delitem__(self, index: SupportsIndex | slice) -> None:
        new = self.data[:]
        del new[index]
        self._replace(new)

    def _replace(self, new: list[V]) -> None:
        """Replace the list with one that is not longer; log a change for each different item."""
        old, undo_log = self.data, self.undo_log
        for index, value in enumerate(new):
            if value is not old[index]:
                undo_log.extend((self, index, old[index], value))
        for index in reversed(range(len(new), len(old))):
            undo_log.extend((self, index, old[index], MISSING))
        self.data = new

    def clear(self) -> None:
        """Remove all values, in O(1)."""
        if self.data:
            self.undo_log.extend((self, ALL, self.data, MISSING))
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
        old, position = self.data[index], range(len(self.data))[index]
        self.undo_log.extend((self, position, old, value))
        self.data[position] = value

    def __len__(self) -> int:
        return len(self.data)

    def __iter__(self) -> Iterator[V]:
        return iter(self.data[:])  # a copy, as the loop may change the list

    def copy(self) -> list[V]:
        """Return a plain list with the same values."""
        return list(self)

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
        else:  # a restore may assign a later slot first
            data.extend([cast(V, MISSING)] * (index - len(data)))
            data.append(cast(V, value))

    def slots(self) -> Iterator[tuple[object, object]]:
        return iter(enumerate(self.data))


class MapState(dict[K, V], State):
    """A map for each key: a dict whose changes can be undone.

    Keys have the types that `key_by` accepts. Two keys are the same only if type and value are the
    same: 5, 5.0 and True are three keys. (In a plain dict, as `copy` returns it, these three are
    one key.)

    Iteration is in the order of the encoded keys, O(n log n), because insertion order would differ
    after an undo or a recovery. `popitem` removes the last item in that order.

    Args:
        name: Name of the state; unique within an operator.
        ttl: Time to live: each item is dropped this long after its last change, in event
            time. The sources of the operator then need event times.
    """

    __slots__ = ("key", "name", "undo_log")

    def __init__(self, name: str, *, ttl: Duration | None = None) -> None:
        super().__init__()
        self.name = _named(name, ttl)

    def for_key(self, key: object, undo_log: UndoLog) -> MapState[K, V]:
        state = self.__new__(type(self))  # an empty dict needs no __init__
        state.name = self.name
        state.key, state.undo_log = key, undo_log
        return state

    def __getitem__(self, key: K) -> V:
        if type(key) in EXACT:
            return _dict_get_item(self, key)
        try:
            return _dict_get_item(self, cast(K, exact_key(key)))
        except KeyError:
            raise KeyError(key) from None

    def __contains__(self, key: object) -> bool:
        return _dict_contains(self, key if type(key) in EXACT else exact_key(key))

    def __setitem__(self, key: K, value: V) -> None:
        # Hot path of the whole system: a new key costs one look-up.
        if type(key) not in EXACT:
            key = cast(K, exact_key(key))
        before = len(self)
        old = _dict_setdefault(self, key, value)
        if len(self) > before:
            self.undo_log.extend((self, key, MISSING, value))
        else:
            self.undo_log.extend((self, key, old, value))
            _dict_set(self, key, value)

    def __delitem__(self, key: K) -> None:
        self.remove(key, self[key])

    def remove(self, key: K, value: object) -> None:
        """Remove a key; `value`: its stored value, for the undo log."""
        if type(key) not in EXACT:
            key = cast(K, exact_key(key))
        self.undo_log.extend((self, key, value, MISSING))
        dict.__delitem__(self, key)

    def clear(self) -> None:
        """Remove all items."""
        if self:
            self.undo_log.extend((self, ALL, dict(dict.items(self)), MISSING))
            dict.clear(self)

    def __iter__(self) -> Iterator[K]:
        return iter(sorted(self._plain_keys(), key=pack))

    def _plain_keys(self) -> list[K]:
        """Return the keys in no particular order."""
        keys = cast(Iterator[object], dict.__iter__(self))
        return cast(list[K], [key.value if type(key) is ExactKey else key for key in keys])

    def __reversed__(self) -> Iterator[K]:
        return reversed(list(self))

    def __eq__(self, other: object) -> bool:
        return self.copy() == other

    def __ne__(self, other: object) -> bool:
        return self.copy() != other

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        items = ", ".join(f"{key!r}: {value!r}" for key, value in self.items())
        return f"MapState({{{items}}})"

    def keys(self) -> list[K]:  # type: ignore[override]
        """Return the keys in the order of their encoding."""
        return list(self)

    def values(self) -> list[V]:  # type: ignore[override]
        """Return the values in the order of the encoded keys."""
        return [self[key] for key in self]

    def items(self) -> list[tuple[K, V]]:  # type: ignore[override]
        """Return (key, value) pairs in the order of the encoded keys."""
        return [(key, self[key]) for key in self]

    @overload
    def get(self, key: K, default: None = None) -> V | None: ...
    @overload
    def get(self, key: K, default: V) -> V: ...
    @overload
    def get(self, key: K, default: D) -> V | D: ...
    def get(self, key: K, default: object = None) -> object:
        """Return the value of a key, or the default if there is none."""
        return _dict_get(self, key if type(key) in EXACT else cast(K, exact_key(key)), default)

    # The mutating methods below change the dict only through the methods above, which log changes.
    @overload
    def pop(self, key: K, /) -> V: ...
    @overload
    def pop(self, key: K, default: V, /) -> V: ...
    @overload
    def pop(self, key: K, default: D, /) -> V | D: ...
    def pop(self, key: K, /, *default: object) -> object:
        """Remove a key and return its value, or the default.

        Raises:
            KeyError: There is neither the key nor a default.
        """
        if default and key not in self:
            (value,) = default
            return value
        value = self[key]
        del self[key]
        return value

    def popitem(self) -> tuple[K, V]:
        """Remove and return the last item, in the order of the encoded keys.

        Raises:
            KeyError: The map is empty.
        """
        if not self:
            raise KeyError("popitem of an empty map")
        key = max(self._plain_keys(), key=pack)
        return key, self.pop(key)

    def setdefault(self, key: K, default: V, /) -> V:
        """Return the value of a key; if it has none, set it to the default first."""
        if key not in self:
            self[key] = default
        return self[key]

    def update(  # type: ignore[override]
        self, other: Mapping[K, V] | Iterable[tuple[K, V]] = (), /, **named: V
    ) -> None:
        """Set all items of another map, or of pairs, and all named items."""
        for key, value in other.items() if isinstance(other, Mapping) else other:
            self[key] = value
        for name, value in named.items():
            self[cast(K, name)] = value

    def __ior__(self, other: Mapping[K, V] | Iterable[tuple[K, V]], /) -> Self:  # type: ignore[override, misc]
        self.update(other)
        return self

    def copy(self) -> dict[K, V]:
        """Return a plain dict with the same items, in the order of the encoded keys."""
        return dict(self.items())

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


_dict_contains = dict.__contains__
_dict_get = dict.get
_dict_get_item = dict.__getitem__
_dict_set = dict.__setitem__
_dict_setdefault = dict.setdefault


def keys_of_removals(undo_log: UndoLog) -> list[object]:
    """Return the key of each change that removes a value."""
    return [state.key for state, _, _, new in changes_of(undo_log) if new is MISSING]


def undo(undo_log: UndoLog) -> None:
    """Undo changes, last one first."""
    for state, slot, old, _ in reversed([*changes_of(undo_log)]):
        state.assign(slot, old)


def show_as(cls: type, declared: type[State]) -> None:
    """Give a class and its methods the names of the declared class.

    Errors contain these names, and dead letters contain errors: so they must not depend on whether
    the states are plain or serialised.
    """
    cls.__name__ = cls.__qualname__ = declared.__name__
    for name, member in vars(cls).items():
        if callable(member) and hasattr(member, "__qualname__"):
            member.__qualname__ = f"{declared.__name__}.{name}"
