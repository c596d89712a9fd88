"""What is final is settled, saved and let go, and neither outputs nor states change."""

from unittest.mock import patch

import pytest
from hypothesis import event, given, settings

import driftline.engine.state.changelog
from driftline.engine.flow.flow import Flow
from driftline.engine.labels import INFINITY
from driftline.engine.operators.speculative import Speculative
from driftline.engine.state.changelog import MANY
from driftline.engine.state.managed import ValueState
from tests.engine.operators.operators import (
    KINDS,
    Payload,
    Story,
    flow_of,
    held,
    make,
    net,
    one_by_one,
    push,
    restored,
    snapshot,
    stories,
)


@pytest.mark.parametrize("kind", KINDS)
@given(story=stories())
@settings(max_examples=150)
def test_settling_what_is_final_changes_neither_outputs_nor_states(kind: str, story: Story) -> None:
    flow = flow_of(kind)
    step, collected = make(Speculative, flow)
    frontier = 0
    for batch, to, exactly in zip(story.batches, story.frontiers, story.exactly, strict=True):
        push(step, batch)
        frontier = max(frontier, to)
        step.settle(frontier, exactly)
        step.validate()
    outputs, states = one_by_one(flow.vertices[1], story.survivors)
    assert net(collected) == outputs
    assert held(step.table) == states
    step.settle(INFINITY)
    assert held(step.table) == states


@pytest.mark.parametrize("kind", KINDS)
@given(story=stories())
@settings(max_examples=150)
def test_snapshots_at_any_frontier_hold_the_state_as_of_that_frontier(
    kind: str, story: Story
) -> None:
    flow = flow_of(kind)
    vertex = flow.vertices[1]
    step, _ = make(Speculative, flow)
    chains: list[bytes] = []
    frontier = 0
    for batch, to, wanted in zip(story.batches, story.frontiers, story.snapshots, strict=True):
        push(step, batch)
        frontier = max(frontier, to)
        step.settle(frontier)
        if wanted:
            chains += snapshot(step, frontier)
            final = [element for element in story.survivors if element[0][0] < frontier]
            assert restored(flow, chains) == one_by_one(vertex, final)[1]
    chains += snapshot(step, INFINITY)
    assert restored(flow, chains) == one_by_one(vertex, story.survivors)[1]


@pytest.mark.parametrize("kind", KINDS)
@given(story=stories())
@settings(max_examples=150)
def test_closing_what_nothing_can_come_before_changes_neither_outputs_nor_snapshots(
    kind: str, story: Story
) -> None:
    flow = flow_of(kind)
    vertex = flow.vertices[1]
    step, collected = make(Speculative, flow)
    assert isinstance(step, Speculative)
    chains: list[bytes] = []
    complete = delivered = closed = 0
    with patch.object(driftline.engine.state.changelog, "MANY", 1):
        for batch, to, exactly, wanted in zip(
            story.batches, story.frontiers, story.exactly, story.snapshots, strict=True
        ):
            push(step, batch)
            delivered, complete = complete, max(complete, to)
            step.close(complete)
            step.validate()
            closed += sum(bool(batch.chunk) for batch in step.batches)
            step.settle(delivered, exactly)
            if wanted:
                chains += snapshot(step, delivered)
                final = [element for element in story.survivors if element[0][0] < delivered]
                assert restored(flow, chains) == one_by_one(vertex, final)[1]
        chains += snapshot(step, INFINITY)
    event(f"closed: {bool(closed)}")
    outputs, states = one_by_one(vertex, story.survivors)
    assert net(collected) == outputs
    assert held(step.table) == restored(flow, chains) == states


def test_what_is_closed_is_kept_as_bytes_only() -> None:
    step, _ = make(Speculative, flow_of("collect"))
    assert isinstance(step, Speculative)
    elements = [((7, 0, number), (f"key {number}", "x"), 1) for number in range(MANY)]
    push(step, elements)
    [batch] = step.batches
    step.close(7)
    assert (len(batch.chunk), len(batch.undo_log)) == (0, MANY)
    step.close(8)
    assert len(batch.chunk) > MANY
    assert batch.undo_log == batch.values == batch.results == []


def test_rows_of_a_key_come_in_label_order_though_its_batches_settle_in_another() -> None:
    flow = flow_of("join")
    step, _ = make(Speculative, flow)
    push(step, [((1, 0), ("a", "x"), 1), ((9, 0), ("b", "z"), 1)])
    push(step, [((2, 0), ("a", "y"), 1)])
    step.settle(5)  # the second batch is final, the first only in part
    assert restored(flow, snapshot(step, 5)) == {"a": [{None: "xy"}]}


def test_a_key_whose_states_are_empty_is_forgotten_once_that_is_final() -> None:
    flow = Flow("forget")

    def toggle(element: Payload, texts: ValueState[str]) -> bool:
        if texts.is_empty():
            texts.set(element[1])
        else:
            texts.clear()
        return texts.is_empty()

    flow.source("in").key_by(0).scan(toggle, ValueState("texts"), name="op").sink()
    step, _ = make(Speculative, flow)
    push(step, [((1, 0), ("a", "x"), 1), ((2, 0), ("a", "x"), 1), ((3, 0), ("b", "x"), 1)])
    step.settle(10)
    assert list(step.table) == ["b"]


def test_memory_of_settled_elements_is_given_back() -> None:
    step, _ = make(Speculative, flow_of("join"))
    assert isinstance(step, Speculative)
    for time in range(1, 200):
        push(step, [((time, 0), ("a", "x"), 1), ((time, 1), ("b", "x"), 1)])
        push(step, [((time, 0, 1), ("a", "y"), 1), ((time, 0, 1), ("a", "y"), -1)])
        step.settle(time - 2)
    assert sum(len(batch.labels) for batch in step.batches) < 20
