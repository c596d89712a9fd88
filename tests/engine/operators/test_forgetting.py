"""Keys with empty states take no memory once their elements are settled."""

from collections.abc import Callable

import pytest

from driftline.engine.flow.flow import Flow
from driftline.engine.operators.keyed import ArrivalOrder, Keyed
from driftline.engine.operators.speculative import Speculative
from driftline.engine.state.managed import ListState, ValueState
from tests.engine.operators.operators import (
    Payload,
    make,
)

KEYS = 4_000


def read_only(element: Payload, seen: ValueState[str]) -> object:
    return seen.get("")


def set_and_clear(element: Payload, seen: ValueState[str]) -> object:
    seen.set(element[1])
    seen.clear()
    return None


def put_a_mutable_value(element: Payload, seen: ListState[list[str]]) -> object:
    seen.append([element[1]])
    return len(seen.pop())


def write_and_raise(element: Payload, seen: ValueState[str]) -> object:
    seen.set(element[1])
    raise ValueError(element[1])


FUNCTIONS: list[Callable[..., object]] = [
    read_only,
    set_and_clear,
    put_a_mutable_value,
    write_and_raise,
]


def flow_with(function: Callable[..., object]) -> Flow:
    flow = Flow("forgets")
    kind = ListState if function is put_a_mutable_value else ValueState
    flow.source("in").key_by(0).scan(function, kind("seen"), name="op").sink()
    return flow


@pytest.mark.parametrize("order", [Speculative, ArrivalOrder])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_keys_with_empty_states_are_removed(
    order: type[Keyed], function: Callable[..., object]
) -> None:
    step, _ = make(order, flow_with(function))
    most = 0
    for times in (range(at, at + 4) for at in range(0, KEYS, 4)):
        values: list[object] = [(f"key {time}", "x") for time in times]
        step.push([(time, 0) for time in times], values, None)
        step.settle(times[0] - 50)
        most = max(most, len(step.table))
    step.settle(KEYS)
    assert len(step.table) == 0
    assert most < 400
