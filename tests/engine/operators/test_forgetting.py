"""Keys without anything in their states take no memory once their elements are settled."""

from collections.abc import Callable, Iterator

import pytest
from hypothesis import given, settings

from driftline.engine.flow.flow import Flow
from driftline.engine.labels import INFINITY
from driftline.engine.operators.context import Context
from driftline.engine.operators.keyed import Arrival, Keyed
from driftline.engine.operators.speculative import Speculative
from driftline.engine.state.managed import ListState, MapState, ValueState
from tests.engine.operators.operators import (
    KINDS,
    Payload,
    Story,
    flow_of,
    held,
    make,
    push,
    stories,
)

KEYS = 20_000


def read_only(element: Payload, seen: ValueState[str]) -> object:
    return seen.get("")


def read_a_map(element: Payload, seen: MapState[str, str]) -> object:
    return seen.get(element[1])


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


def without_states(context: Context, element: Payload) -> Iterator[object]:
    yield element


def two_states(
    context: Context, element: Payload, seen: ValueState[str], texts: ListState[str]
) -> Iterator[object]:
    texts.append(element[1])
    yield seen.get("")
    texts.clear()


FUNCTIONS: list[Callable[..., object]] = [
    read_only,
    read_a_map,
    set_and_clear,
    put_a_mutable_value,
    write_and_raise,
    without_states,
    two_states,
]


def flow_with(function: Callable[..., object]) -> Flow:
    flow = Flow("forgets")
    keyed = flow.source("in").key_by(0)
    if function is without_states:
        keyed.process(without_states, name="op").sink()
    elif function is two_states:
        keyed.process(two_states, ValueState("seen"), ListState("texts"), name="op").sink()
    else:
        kind = {read_a_map: MapState, put_a_mutable_value: ListState}.get(function, ValueState)
        keyed.scan(function, kind("seen"), name="op").sink()
    return flow


@pytest.mark.parametrize("order", [Speculative, Arrival])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_keys_that_never_have_anything_in_their_states_are_forgotten(
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


def test_keys_of_elements_that_were_taken_back_are_forgotten() -> None:
    step, _ = make(Speculative, flow_of("join"))
    for time in range(0, KEYS, 10):
        elements = [((time, i), (f"key {time + i}", "x"), 1) for i in range(10)]
        push(step, elements)
        push(step, [(label, value, -1) for label, value, _ in elements])
        step.settle(time)
    step.settle(KEYS)
    assert len(step.table) == 0


def test_a_key_that_is_read_while_its_removal_is_settled_is_forgotten_later() -> None:
    step, _ = make(Speculative, flow_with(set_and_clear))
    push(step, [((1, 0), ("a", "x"), 1)])
    push(step, [((9, 0), ("a", "y"), 1)])
    step.settle(5)
    step.settle(10)
    assert len(step.table) == 0


@pytest.mark.parametrize("kind", KINDS)
@given(story=stories())
@settings(max_examples=150)
def test_once_all_is_settled_no_key_without_states_is_left(kind: str, story: Story) -> None:
    step, _ = make(Speculative, flow_of(kind))
    frontier = 0
    for batch, to, exactly in zip(story.batches, story.frontiers, story.exactly, strict=True):
        push(step, batch)
        frontier = max(frontier, to)
        step.settle(frontier, exactly)
        step.validate()
    step.settle(INFINITY)
    assert step.table.keys() == held(step.table).keys()
