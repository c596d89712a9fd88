"""Values, lists and tables of states: what is read is what was put, and no key sees another's."""

from __future__ import annotations

import pytest

from driftline.engine.state.managed import (
    ListState,
    MapState,
    ReducingState,
    ValueState,
)
from driftline.engine.state.table import StateTable
from tests.engine.state.states import DECLARED, fresh


def test_a_value_that_was_never_set_is_the_default_and_none_can_be_a_value() -> None:
    state, _ = fresh(ValueState[object]("value"))
    assert isinstance(state, ValueState)
    assert state.get() is None
    assert state.get("default") == "default"
    state.set(None)
    assert state.get("default") is None
    assert not state.is_empty()


def test_a_list_is_read_like_a_list() -> None:
    state, _ = fresh(ListState[str]("list"))
    assert isinstance(state, ListState)
    for text in "abc":
        state.append(text)
    assert (state[0], state[-1], list(state), len(state)) == ("a", "c", ["a", "b", "c"], 3)
    assert "b" in state
    with pytest.raises(IndexError):
        state[3]
    state[-1] = "z"
    assert list(state) == ["a", "b", "z"]
    assert (state.pop(0), list(state)) == ("a", ["b", "z"])
    state.extend("xy")
    del state[:-2]
    assert list(state) == ["x", "y"]
    del state[0]
    assert list(state) == ["y"]


def test_states_of_different_keys_have_nothing_in_common() -> None:
    table = StateTable(DECLARED, [])
    for key in ("a", "b"):
        for state in table.states(key):
            assert state.is_empty()
        value, many, mapped, total = table.states(key)
        assert isinstance(value, ValueState)
        assert isinstance(many, ListState)
        assert isinstance(mapped, MapState)
        assert isinstance(total, ReducingState)
        value.set(key)
        many.append(key)
        mapped[key] = key
        total.add(key)
    assert all(state.is_empty() for state in DECLARED)


def test_only_a_key_with_nothing_in_its_states_is_reclaimed() -> None:
    table = StateTable((ValueState[int]("value"),), [])
    for key in ("full", "empty"):
        [state] = table.states(key)
        assert isinstance(state, ValueState)
        state.set(1)
        if key == "empty":
            state.clear()
    table.perhaps_empty.append("unknown")
    table.reclaim(needed={"empty"})
    assert list(table) == ["full", "empty"]
    table.reclaim()
    assert list(table) == ["full"]
