"""A map reads and changes as a dictionary does, and its order tells nothing of its history."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driftline.engine.state.managed import (
    ListState,
    MapState,
    ReducingState,
    ValueState,
    undo,
)
from driftline.engine.state.table import StateTable, as_serialised
from driftline.engine.wire.codec import pack
from tests.engine.state.states import DECLARED, exact, fresh


@given(st.permutations(["b", "a", 1, 2, (1,), None, -1, "aa"]), st.integers(0, 2**32))
def test_the_order_of_a_map_does_not_depend_on_how_it_came_about(
    keys: list[object], seed: int
) -> None:
    state, undo_log = fresh(MapState[object, object]("map"))
    assert isinstance(state, MapState)
    chance = Random(seed)
    for key in keys:
        state[key] = "value"
        if chance.random() < 0.3:
            del state[key]
            state[key] = "value"
        if chance.random() < 0.3:
            mark = len(undo_log)
            state.clear()
            state["other"] = 1
            undo(undo_log[mark:])
            del undo_log[mark:]
    assert list(state) == sorted(keys, key=pack)
    assert state.keys() == [key for key, _ in state.items()]


@pytest.mark.parametrize(
    "look",
    [
        lambda state: list(reversed(state)),
        repr,
    ],
    ids=["reversed", "repr"],
)
def test_no_way_to_look_at_a_map_shows_its_history(
    look: Callable[[MapState[str, int]], object],
) -> None:
    one, _ = fresh(MapState[str, int]("map"))
    other, _ = fresh(MapState[str, int]("map"))
    assert isinstance(one, MapState)
    assert isinstance(other, MapState)
    one["a"], one["b"] = 1, 2
    other["b"], other["a"] = 2, 1
    assert look(one) == look(other)


@pytest.mark.parametrize(
    "look",
    [
        dict,
        list,
        tuple,
        lambda state: {**state},
        lambda state: state.copy(),
        lambda state: state | {},
    ],
)
def test_a_copy_of_a_map_is_in_the_order_of_its_keys(
    look: Callable[[MapState[str, int]], object],
) -> None:
    state, _ = fresh(MapState[str, int]("map"))
    assert isinstance(state, MapState)
    state["b"], state["a"] = 2, 1
    assert list(look(state)) == ["a", "b"]  # type: ignore[call-overload]


def test_an_undone_removal_brings_back_the_key_as_it_was() -> None:
    """1, 1.0 and True are one key of a map; the one that was put first stays."""
    state, undo_log = fresh(MapState[object, object]("map"))
    assert isinstance(state, MapState)
    state[1] = "value"
    mark = len(undo_log)
    del state[True]
    undo(undo_log[mark:])
    assert exact(state.keys()) == "[1]"


@pytest.mark.parametrize("serialised", [False, True])
@pytest.mark.parametrize(
    ("change", "result", "after"),
    [
        (lambda state: state.pop("a"), 1, {"z": 2}),
        (lambda state: state.pop("b", 7), 7, {"a": 1, "z": 2}),
        (lambda state: state.popitem(), ("z", 2), {"a": 1}),
        (lambda state: state.setdefault("b", 1), 1, {"a": 1, "b": 1, "z": 2}),
        (lambda state: state.setdefault("a", 5), 1, {"a": 1, "z": 2}),
        (lambda state: state.update({"b": 1}), None, {"a": 1, "b": 1, "z": 2}),
        (lambda state: state.update([("a", 3)], b=1), None, {"a": 3, "b": 1, "z": 2}),
        (lambda state: state.__ior__({"b": 1}).copy(), {"a": 1, "b": 1, "z": 2}, None),
    ],
)
def test_a_map_changes_as_a_dictionary_does_and_each_change_can_be_undone(
    change: Callable[[MapState[str, int]], object],
    result: object,
    after: dict[str, int] | None,
    serialised: bool,
) -> None:
    state, undo_log = fresh(MapState[str, int]("map"))
    assert isinstance(state, MapState)
    if serialised:
        as_serialised(state)
    state.update(z=2, a=1)
    before = len(undo_log)
    assert change(state) == result
    assert state.copy() == (after if after is not None else result)
    undo(undo_log[before:])
    assert state.items() == [("a", 1), ("z", 2)]


# Values, lists and tables of states: what is read is what was put, and no key sees another's


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
