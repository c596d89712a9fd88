"""Speculative steps: outputs are those of the label order, and protocol violations are detected."""

from __future__ import annotations

from operator import add
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driftline.barrier.ordered import OrderedBarrier
from driftline.deploy.node.pipeline import BufferingGate
from driftline.engine.flow.flow import Flow
from driftline.engine.labels import INFINITY, Label
from driftline.engine.operators.context import Context
from driftline.engine.operators.keyed import ArrivalOrder
from driftline.engine.operators.speculative import Speculative
from driftline.engine.reference import run_reference
from driftline.engine.snapshots.jobs import Capture
from driftline.engine.state.managed import ListState, ReducingState, ValueState
from tests.engine.operators.operators import (
    KINDS,
    Collected,
    Element,
    Story,
    chains_of,
    flow_of,
    held,
    labels,
    make,
    net,
    one_by_one,
    payloads,
    push,
    restored,
    snapshot,
    stories,
    taken,
)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=20)
@given(story=stories())
def test_ordered_input_causes_no_tombstones(kind: str, story: Story) -> None:
    flow = flow_of(kind)
    step, collected = make(Speculative, flow)
    assert isinstance(step, Speculative)
    for start in range(0, len(story.survivors), 3):
        push(step, [(*element, 1) for element in story.survivors[start : start + 3]])
    outputs, _ = one_by_one(flow.vertices[1], story.survivors)
    assert collected.tombstones == 0
    assert step.out_of_order == 0
    assert net(collected) == outputs


@settings(max_examples=30)
@given(stories())
def test_unchanged_output_is_not_sent_again_after_a_correction(story: Story) -> None:
    step, collected = make(Speculative, flow_of("only_itself"))
    for batch in story.batches:
        for element in batch:
            push(step, [element])
    sent = [(label, value, sign) for label, _, value, sign in collected.pushed]
    assert sorted(sent) == sorted(element for batch in story.batches for element in batch)


def test_only_changed_outputs_are_sent_again() -> None:
    def number(_: Context, element: tuple[str, str], count: ReducingState[int]) -> list[object]:
        n = count.add(1)
        return [element[1], n, *(["more"] if n > 1 else [])]

    flow = Flow("numbers")
    keyed = flow.source("in").key_by(0)
    keyed.process(number, ReducingState("count", add), name="op").sink()
    step, collected = make(Speculative, flow)
    step.push([(2, 0)], [("a", "second")], None)
    step.push([(1, 0)], [("a", "first")], None)
    assert [(label, value, sign) for label, _, value, sign in collected.pushed[2:]] == [
        ((1, 0, 0), "first", 1),
        ((1, 0, 1), 1, 1),
        ((2, 0, 1), 1, -1),
        ((2, 0, 1), 2, 1),
        ((2, 0, 2), "more", 1),
    ]


@settings(max_examples=30)
@given(stories())
def test_output_is_retracted_before_it_is_sent_again(story: Story) -> None:
    step, collected = make(Speculative, flow_of("join"))
    for batch in story.batches:
        push(step, batch)
    there: dict[Label, list[object]] = {}
    for label, _, value, sign in collected.pushed:
        here = there.setdefault(label, [])
        if sign < 0:
            here.remove(value)  # a tombstone follows the element that it retracts
        else:
            here.append(value)
    many = [label for label, values in there.items() if len(values) > 1]
    assert many == []


def test_equal_outputs_of_different_types_are_distinguished() -> None:
    flow = Flow("types")

    def first_decides(element: tuple[str, int], one: ValueState[object]) -> object:
        """Return 1 for the first element, True for others."""
        is_first = one.is_empty()
        one.set(True)
        return 1 if is_first else True

    flow.source("in").key_by(0).scan(first_decides, ValueState("one"), name="op").sink()
    step, collected = make(Speculative, flow)
    step.push([(2, 0)], [("a", 2)], None)
    step.push([(1, 0)], [("a", 1)], None)
    assert [repr(value) for _, _, value in collected.net()] == ["1", "True"]


def test_late_element_may_change_a_result_that_cannot_be_encoded() -> None:
    flow = Flow("sets")

    def growing(element: tuple[str, str], texts: ValueState[str]) -> set[str]:
        texts.set(texts.get("") + element[1])
        return set(texts.get(""))

    flow.source("in").key_by(0).scan(growing, ValueState("texts"), name="op").sink()
    step, collected = make(Speculative, flow)
    step.push([(2, 0)], [("a", "y")], None)
    step.push([(1, 0)], [("a", "x")], None)
    there: list[object] = []
    for _, _, value, sign in collected.pushed:
        there.append(value) if sign > 0 else there.remove(value)
    assert there in ([{"x"}, {"x", "y"}], [{"x", "y"}, {"x"}])


# ArrivalOrder order: elements are applied as they arrive


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=30)
@given(
    epochs=st.lists(
        st.lists(st.tuples(labels, payloads), max_size=5, unique_by=lambda e: e[0]), max_size=4
    )
)
def test_unordered_elements_are_applied_on_arrival_and_saved_by_epoch(
    kind: str, epochs: list[list[Element]]
) -> None:
    flow = flow_of(kind)
    step, collected = make(ArrivalOrder, flow)
    chains: list[bytes] = []
    before: list[Element] = []
    captures: list[Capture] = []
    for elements in epochs:
        push(step, [(*element, 1) for element in elements])
        captures.append(taken(step))  # written after the next epoch has started
    for elements, capture in zip(epochs, captures, strict=True):
        before += elements
        chains += chains_of(capture)
        assert restored(flow, chains) == one_by_one(flow.vertices[1], before)[1]
    outputs, states = one_by_one(flow.vertices[1], before)
    assert net(collected) == outputs
    assert held(step.table) == states
    step.settle(INFINITY)
    assert step.table.keys() == states.keys(), "a key without states takes memory"


def key_and_values(
    context: Context, value: object, seen: ListState[object]
) -> list[tuple[object, ...]]:
    seen.append(value)
    return [(context.key, *seen)]


def test_late_element_keeps_the_type_of_its_key() -> None:
    """5, 5.0 and True, 1 are different keys, whichever arrives first."""
    flow = Flow("types")
    keyed = flow.source("values").key_by(lambda value: value[0])
    keyed.process(key_and_values, ListState[object]("seen"), name="op").sink()
    values: list[Any] = [(key, n) for n, key in enumerate([5.0, 5, 1, True, 5.0, 0.0, -0.0, 5])]
    step, collected = make(Speculative, flow)
    for number in (2, 5, 4, 1, 7, 8, 3, 6):
        push(step, [((number, 0), values[number - 1], 1)])
    expected = [(item.label, item.sink, item.value) for item in run_reference(flow, [values])]
    assert repr(collected.net()) == repr(expected)
    states = held(step.table)
    assert len(states) == 6
    assert restored(flow, snapshot(step, 9)) == states


def operator() -> Speculative:
    flow = Flow("never")
    flow.source("in").key_by(lambda _: "key").scan(
        lambda value, last: value, ValueState[str]("last"), name="op"
    ).sink()
    collected = Collected()
    return Speculative(flow.vertices[1], collected, collected.failures)


def test_tombstone_retracts_only_the_element_with_its_label() -> None:
    """Another element with the same payload is not retracted."""
    step = operator()
    step.push([(1, 0), (2, 0), (3, 0)], ["other", "same", "same"], None)
    with pytest.raises(AssertionError, match="a tombstone for"):
        step.push([(1, 0)], ["same"], [-1])
    step = operator()
    step.push([(2, 0)], ["same"], None)
    with pytest.raises(AssertionError, match="a tombstone for"):
        step.push([(1, 0)], ["same"], [-1])


def test_operator_rejects_elements_below_the_closed_time() -> None:
    step = operator()
    step.push([(5, 0)], ["a"], None)
    step.close(5)
    step.push([(5, 1)], ["b"], None)
    with pytest.raises(AssertionError, match=r"'op'.*time 4 arrived, but times below 5 are closed"):
        step.push([(4, 0)], ["c"], None)


def test_barrier_rejects_outputs_below_the_released_time() -> None:
    barrier = OrderedBarrier("barrier-0", (0, 127))
    barrier.add_outputs(0, [(5, 0)], ["a"], None)
    barrier.advance(6)
    with pytest.raises(AssertionError, match="time 5; outputs up to 5 have left"):
        barrier.add_outputs(0, [(6, 0), (5, 1)], ["b", "c"], None)


def test_gate_rejects_elements_below_the_released_time() -> None:
    gate = BufferingGate(1, lambda: 1)
    gate.advance(5)
    assert not gate.has_released
    gate.push([(5, 0)], ["a"], None)
    with pytest.raises(AssertionError, match=r"time 4, but .* below 5"):
        gate.push([(4, 0)], ["b"], None)
