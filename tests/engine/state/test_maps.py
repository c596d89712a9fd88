"""Maps read and change like dictionaries, and their order does not depend on history."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driftline.engine.state.managed import (
    MapState,
    ValueState,
    undo,
)
from driftline.engine.state.plain import Undo, plain_state
from driftline.engine.state.table import StateTable, serialise_state
from driftline.engine.wire.codec import pack
from tests.engine.state.states import exact, fresh


@given(st.permutations(["b", "a", 1, 2, (1,), None, -1, "aa"]), st.integers(0, 2**32))
def test_map_order_does_not_depend_on_its_history(keys: list[object], seed: int) -> None:
    state, undo_log = fresh(MapState[object, object]("map"))
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


EQUAL: list[object] = [1, True, 0, False, 0.0, -0.0, 1.0, (1,), (True,), (1.0,)]
"""In Python these are three different keys; in a map state they are ten, ordered by encoding."""


@pytest.mark.parametrize("kind", ["as it is", "serialised", "of the reference"])
def test_equal_keys_of_different_types_are_different_keys_of_a_map(kind: str) -> None:
    state, undo_log = fresh(MapState[object, object]("map"))
    if kind == "serialised":
        serialise_state(state)
    undone = Undo()
    mapped: Any = plain_state(state, undone) if kind == "of the reference" else state
    keys = sorted(EQUAL, key=pack)
    for number, key in enumerate(keys[:-1]):
        mapped[key] = number
    assert exact(mapped.keys()) == exact(keys[:-1])
    assert [mapped[key] for key in keys[:-1]] == list(range(len(keys) - 1))
    assert keys[-1] not in mapped
    assert mapped.get(keys[-1], "no") == "no"
    with pytest.raises(KeyError):
        mapped[keys[-1]]
    mark, plain_mark = len(undo_log), len(undone)
    del mapped[True]
    assert mapped.pop(1.0) == list(map(pack, keys)).index(pack(1.0))
    mapped[1] = "changed"
    mapped.clear()
    mapped.update([(5, "int"), (5.0, "float")])
    assert repr(mapped) == "MapState({5: 'int', 5.0: 'float'})"
    undo(undo_log[mark:])
    for take_back in reversed(undone[plain_mark:]):
        take_back()
    assert exact(mapped.items()) == exact([(key, at) for at, key in enumerate(keys[:-1])])


# Values, lists and tables of states: reads return what was written, and keys are isolated


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


@pytest.mark.parametrize("kind", ["node", "reference"])
def test_a_map_with_equal_keys_of_different_types_can_be_an_output(kind: str) -> None:
    declared = MapState[object, int]("m")
    found = declared.for_key("key", []) if kind == "node" else plain_state(declared, Undo())
    assert isinstance(found, dict)
    found[5], found[5.0], found[True] = 1, 2, 3
    assert pack(found) == b"\x83" + pack(5) + pack(1) + pack(True) + pack(3) + pack(5.0) + pack(2)
