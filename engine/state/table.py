"""State tables: the states of all keys of an operator.

>>> from driftline.engine.state.managed import ReducingState
>>> table = StateTable((ReducingState("total", lambda a, b: a + b),), [])
>>> total = table["key"]
>>> total.add(2), total.add(3)
(2, 5)
"""

from __future__ import annotations

from collections.abc import Callable, Container

from driftline.engine.state.managed import Change, State


class States(tuple[State, ...]):
    """The states of one key, if the operator declares several."""


class StateTable(dict[object, State | States]):
    """Key -> the state of the key, or its `States` if the operator declares several.

    A new key gets fresh states. Looking up a known key costs as much as in a plain dict.
    """

    def __init__(self, declared: tuple[State, ...], undo_log: list[Change]) -> None:
        super().__init__()
        self.declared = declared
        self.undo_log = undo_log
        self.convert: Callable[[State], None] | None = None
        """Makes a new state serialised; None while all stored values are immutable."""
        self.perhaps_empty: list[object] = []
        """Keys whose states may be empty: `reclaim` looks at them. A new key is one of them."""

    def __missing__(self, key: object) -> State | States:
        states: State | States
        if len(self.declared) == 1:
            states = self.declared[0].fresh(key, self.undo_log)
        else:
            states = States(state.fresh(key, self.undo_log) for state in self.declared)
        self[key] = states
        self.perhaps_empty.append(key)
        if self.convert is not None:
            for state in self.states(key):
                self.convert(state)
        return states

    def states(self, key: object) -> tuple[State, ...]:
        """The states of a key, in the order of their declaration."""
        states = self[key]
        return states if isinstance(states, States) else (states,)

    def is_empty(self, key: object) -> bool:
        """Whether the table has the key, and all its states are empty."""
        states = self.get(key)
        if isinstance(states, States):
            return all(state.is_empty() for state in states)
        return states is not None and states.is_empty()

    def reclaim(self, needed: Container[object] = ()) -> None:
        """Remove the keys in `perhaps_empty` whose states are empty.

        The `needed` ones of them stay, and are looked at again the next time.
        """
        empty = list(filter(self.is_empty, self.perhaps_empty))
        self.perhaps_empty.clear()
        for key in dict.fromkeys(empty):
            if key in needed:
                self.perhaps_empty.append(key)
            else:
                del self[key]
