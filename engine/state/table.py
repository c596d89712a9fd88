"""State tables: the states of all keys of an operator.

>>> from driftline.engine.state.managed import ReducingState
>>> table = StateTable((ReducingState("total", lambda a, b: a + b),), [])
>>> total = table["key"]
>>> total.add(2), total.add(3)
(2, 5)
"""

from __future__ import annotations

from collections.abc import Callable

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

    def __missing__(self, key: object) -> State | States:
        states: State | States
        if len(self.declared) == 1:
            states = self.declared[0].fresh(key, self.undo_log)
        else:
            states = States(state.fresh(key, self.undo_log) for state in self.declared)
        self[key] = states
        if self.convert is not None:
            for state in self.states(key):
                self.convert(state)
        return states

    def states(self, key: object) -> tuple[State, ...]:
        """The states of a key, in the order of their declaration."""
        states = self[key]
        return states if isinstance(states, States) else (states,)

    def reclaim(self, key: object) -> None:
        """Remove a key if all its states are empty."""
        if key in self and all(state.is_empty() for state in self.states(key)):
            del self[key]
