"""State tables: the states of all keys of an operator, plain or serialised.

>>> from driftline.engine.state.managed import ReducingState
>>> table = StateTable((ReducingState("total", lambda a, b: a + b),), [])
>>> total = table["key"]
>>> total.add(2), total.add(3)
(2, 5)

A serialised state stores mutable values as bytes, and each `get` decodes a fresh copy
(`engine.state.values`). So the undo log contains every change: if a function changes a value that
it has stored or read, the state stays the same. A value that cannot be stored is rejected when the
function stores it, so the error names the user's line.

An operator starts with the states of `engine.state.managed`, which check nothing. When a batch
first stores a mutable value, the operator undoes the changes of the batch, converts the states of
all keys in place to serialised ones, and applies the batch again (`engine.operators.keyed`).

>>> table = StateTable((ValueState("last"),), [])
>>> serialise(table)
>>> last, value = table["key"], {"n": 1}
>>> last.set(value); value["n"] = 2; last.get()
{'n': 1}
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from typing import Generic, SupportsIndex, TypeVar, cast

from driftline.engine.state.managed import (
    ListState,
    MapState,
    ReducingState,
    State,
    UndoLog,
    ValueState,
    show_as,
)
from driftline.engine.state.values import freeze, slot_of, thaw

K = TypeVar("K")
V = TypeVar("V")


class States(tuple[State, ...]):
    """States of one key, if the operator declares several."""


def are_empty(states: State | States) -> bool:
    """Return whether all states of a key are empty."""
    if isinstance(states, States):
        return all(state.is_empty() for state in states)
    return states.is_empty()


class StateTable(dict[object, State | States]):
    """Dict from exact key to its state, or to its `States` if the operator declares several.

    A new key gets fresh states. Looking up a known key costs as much as in a plain dict.
    """

    def __init__(self, declared: tuple[State, ...], undo_log: UndoLog) -> None:
        super().__init__()
        self.declared = declared
        self.undo_log = undo_log
        self.convert: Callable[[State], None] | None = None
        """Converts new states to serialised ones; None while all stored values are immutable."""
        self.perhaps_empty: list[object] = []
        """Keys for `reclaim` to check, as their states may be empty. A new key is added here."""

    def __missing__(self, key: object) -> State | States:
        states: State | States
        if len(self.declared) == 1:
            states = self.declared[0].for_key(key, self.undo_log)
        else:
            states = States(state.for_key(key, self.undo_log) for state in self.declared)
        self[key] = states
        self.perhaps_empty.append(key)
        if self.convert is not None:
            for state in self.states(key):
                self.convert(state)
        return states

    def states(self, key: object) -> tuple[State, ...]:
        """Return the states of a key, in the order of their declaration."""
        states = self[key]
        return states if isinstance(states, States) else (states,)

    def is_empty(self, key: object) -> bool:
        """Return whether the table has the key, and all its states are empty."""
        states = self.get(key)
        return states is not None and are_empty(states)

    def reclaim(self, needed: Container[object] = ()) -> None:
        """Remove the keys in `perhaps_empty` whose states are empty.

        Keys that are also in `needed` stay, and the next call checks them again.
        """
        empty = list(filter(self.is_empty, self.perhaps_empty))
        self.perhaps_empty.clear()
        for key in dict.fromkeys(empty):
            if key in needed:
                self.perhaps_empty.append(key)
            else:
                del self[key]


class SerialisedValue(ValueState[V]):
    """Serialised `ValueState`."""

    __slots__ = ()

    def get(self, default: object = None) -> object:  # type: ignore[override]
        return thaw(super().get(default))

    def set(self, value: V) -> None:
        super().set(cast(V, freeze(value)))


class SerialisedReducing(ReducingState[V]):
    """Serialised `ReducingState`; the reduce function may change its arguments."""

    __slots__ = ()

    def get(self, default: object = None) -> object:  # type: ignore[override]
        return thaw(super().get(default))

    def set(self, value: V) -> None:
        super().set(cast(V, freeze(value)))

    def add(self, value: V) -> V:
        new = value if self.is_empty() else self.reduce(cast(V, self.get()), value)
        self.set(new)
        return new


class SerialisedList(ListState[V]):
    """Serialised `ListState`."""

    __slots__ = ()

    def append(self, value: V) -> None:
        super().append(cast(V, freeze(value)))

    def pop(self, index: SupportsIndex = -1) -> V:
        return cast(V, thaw(super().pop(index)))

    def __getitem__(self, index: SupportsIndex | slice) -> object:  # type: ignore[override]
        if isinstance(index, slice):
            return list(map(thaw, self.data[index]))
        return thaw(self.data[index])

    def __setitem__(self, index: SupportsIndex | slice, value: V) -> None:
        super().__setitem__(index, cast(V, freeze(value)))

    def __iter__(self) -> Iterator[V]:
        return cast(Iterator[V], map(thaw, self.data[:]))


class SerialisedMap(MapState[K, V], Generic[K, V]):
    """Serialised `MapState`."""

    __slots__ = ()

    def __setitem__(self, key: K, value: V) -> None:
        super().__setitem__(cast(K, slot_of(key)), cast(V, freeze(value)))

    def __getitem__(self, key: K) -> V:
        return cast(V, thaw(super().__getitem__(key)))

    def __delitem__(self, key: K) -> None:
        self.remove(key, super().__getitem__(key))

    def get(self, key: K, default: object = None) -> object:  # type: ignore[override]
        return self[key] if key in self else default  # noqa: SIM401  # this is `get`


_SERIALISED: dict[type[State], type[State]] = {
    ValueState: SerialisedValue,
    ReducingState: SerialisedReducing,
    ListState: SerialisedList,
    MapState: SerialisedMap,
}

for _plain, _class in _SERIALISED.items():  # errors name the type that the user declared
    show_as(_class, _plain)


def serialise(table: StateTable) -> None:
    """Convert the states of all keys of a table in place, and each state added later."""
    if table.convert is None:
        table.convert = serialise_state
        for key in table:
            for state in table.states(key):
                serialise_state(state)


def serialise_state(state: State) -> None:
    """Convert one state in place. Its stored values are immutable, so they stay unchanged."""
    state.__class__ = _SERIALISED[type(state)]
