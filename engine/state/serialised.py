"""States that serialise what they are given, for operators whose values are not all immutable.

A value that a function can change is kept as its bytes from the moment it is put, and each `get`
gives a fresh one (`engine.state.values`): what was put cannot be changed behind the back of the
undo_log, and what was got is changed in vain unless it is put again. What cannot be stored is
refused there and then, with the user's line in the error.

An operator begins with the states of `engine.state.managed`, which check nothing. The first batch
of elements whose changes cannot be kept as they are is taken back, the states of all keys become
serialised, in place, and the batch is applied anew (`engine.order.keyed`).

    >>> table = StateTable((ValueState("last"),), [])
    >>> serialise(table)
    >>> last, value = table["key"], {"n": 1}
    >>> last.set(value); value["n"] = 2; last.get()
    {'n': 1}
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, SupportsIndex, TypeVar, cast

from driftline.engine.state.managed import (
    ListState,
    MapState,
    ReducingState,
    State,
    StateTable,
    ValueState,
    show_as,
)
from driftline.engine.state.values import frozen, slot_of, thawed

K = TypeVar("K")
V = TypeVar("V")


class SerialisedValue(ValueState[V]):
    """One value per key."""

    __slots__ = ()

    def get(self, default: object = None) -> object:  # type: ignore[override]
        return thawed(super().get(default))

    def set(self, value: V) -> None:
        super().set(cast(V, frozen(value)))


class SerialisedReducing(ReducingState[V]):
    """One folded value per key; the fold may change the old one."""

    __slots__ = ()

    def get(self, default: object = None) -> object:  # type: ignore[override]
        return thawed(super().get(default))

    def set(self, value: V) -> None:
        super().set(cast(V, frozen(value)))

    def add(self, value: V) -> V:
        new = value if self.is_empty() else self.reduce(cast(V, self.get()), value)
        self.set(new)
        return new


class SerialisedList(ListState[V]):
    """A list per key."""

    __slots__ = ()

    def append(self, value: V) -> None:
        super().append(cast(V, frozen(value)))

    def pop(self) -> V:
        return cast(V, thawed(super().pop()))

    def __getitem__(self, index: SupportsIndex | slice) -> object:  # type: ignore[override]
        if isinstance(index, slice):
            return list(map(thawed, self.data[index]))
        return thawed(self.data[index])

    def __setitem__(self, index: SupportsIndex | slice, value: V) -> None:
        super().__setitem__(index, cast(V, frozen(value)))

    def __iter__(self) -> Iterator[V]:
        return cast(Iterator[V], map(thawed, self.data[:]))


class SerialisedMap(MapState[K, V], Generic[K, V]):
    """A map per key."""

    __slots__ = ()

    def __setitem__(self, key: K, value: V) -> None:
        super().__setitem__(cast(K, slot_of(key)), cast(V, frozen(value)))

    def __getitem__(self, key: K) -> V:
        return cast(V, thawed(super().__getitem__(key)))

    def __delitem__(self, key: K) -> None:
        self.remove(key, super().__getitem__(key))

    def get(self, key: K, default: object = None) -> object:  # type: ignore[override]
        return self[key] if key in self else default  # noqa: SIM401  # which would be this


_SERIALISED: dict[type[State], type[State]] = {
    ValueState: SerialisedValue,
    ReducingState: SerialisedReducing,
    ListState: SerialisedList,
    MapState: SerialisedMap,
}

for _plain, _class in _SERIALISED.items():  # errors show a user the type that he has declared
    show_as(_class, _plain)


def serialise(table: StateTable) -> None:
    """Let the states of all keys, now and later, serialise what they are given."""
    if table.convert is None:
        table.convert = as_serialised
        for key in table:
            for state in table.states(key):
                as_serialised(state)


def as_serialised(state: State) -> None:
    """Let a state serialise what it is given; what it holds stays as it is."""
    state.__class__ = _SERIALISED[type(state)]
