"""Test helpers: states of each type as an operator declares them, and strategies for values."""

from __future__ import annotations

from typing import TypeVar

from hypothesis import strategies as st

from driftline.engine.state.managed import (
    ListState,
    MapState,
    ReducingState,
    State,
    UndoLog,
    ValueState,
)
from driftline.engine.state.table import StateTable

DECLARED = (
    ValueState[object]("value"),
    ListState[object]("list"),
    MapState[object, object]("map"),
    ReducingState[object]("total", lambda old, new: (old, new)),
)


S = TypeVar("S", bound=State)


def fresh(declared: S) -> tuple[S, UndoLog]:
    undo_log: UndoLog = []
    [state] = StateTable((declared,), undo_log).states("key")
    assert isinstance(state, type(declared))
    return state, undo_log


# Serialisable values, and a comparison that distinguishes 1, 1.0 and True


scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.sampled_from([0, 1, -1, 0.0, -0.0, 1.0, True, "", b"", "1", b"1"])
    | st.floats()
    | st.text(max_size=5)
    | st.binary(max_size=5)
)

frozen = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=6)
"""Strategy for immutable values of states: scalars and tuples."""

encodable = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=3) | st.integers(-9, 9), inner, max_size=3)
    ),
    max_leaves=8,
)
"""Strategy for payloads."""


def exact(value: object) -> object:
    """Return a value to compare by; equal iff all types are equal: 1 is not 1.0, 0.0 not -0.0."""
    return repr(value)


def as_tuples(value: object) -> object:
    """Return the value with all its sequences converted to tuples."""
    if isinstance(value, (list, tuple)):
        return tuple(map(as_tuples, value))
    if isinstance(value, dict):
        return {key: as_tuples(inner) for key, inner in value.items()}
    return value
