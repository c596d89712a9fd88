"""Final elements are settled, saved and released, without a change to outputs or states."""

from unittest.mock import patch

import pytest
from hypothesis import event, given, settings

import driftline.engine.state.changelog
from driftline.engine.labels import INFINITY
from driftline.engine.operators.speculative import Speculative
from driftline.engine.state.changelog import CHUNK_CHANGES_MIN
from driftline.engine.state.managed import CHANGE_ITEMS
from tests.engine.operators.operators import (
    KINDS,
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
@settings(max_examples=50)
def test_settling_keeps_outputs_and_snapshots_match_their_frontier(kind: str, story: Story) -> None:
    flow = flow_of(kind)
    vertex = flow.vertices[1]
    step, collected = make(Speculative, flow)
    chains: list[bytes] = []
    frontier = 0
    for batch, to, exactly, wanted in zip(
        story.batches, story.frontiers, story.exactly, story.snapshots, strict=True
    ):
        push(step, batch)
        frontier = max(frontier, to)
        step.settle(frontier, exactly)
        step.validate()
        if wanted:
            chains += snapshot(step, frontier)
            final = [element for element in story.survivors if element[0][0] < frontier]
            assert restored(flow, chains) == one_by_one(vertex, final)[1]
    outputs, states = one_by_one(vertex, story.survivors)
    assert net(collected) == outputs
    assert held(step.table) == states
    step.settle(INFINITY)
    assert held(step.table) == states
    assert step.table.keys() == states.keys(), "a key without states takes memory"
    chains += snapshot(step, INFINITY)
    assert restored(flow, chains) == states


@pytest.mark.parametrize("kind", KINDS)
@given(story=stories())
@settings(max_examples=50)
def test_closing_a_complete_time_keeps_outputs_and_snapshots(kind: str, story: Story) -> None:
    flow = flow_of(kind)
    vertex = flow.vertices[1]
    step, collected = make(Speculative, flow)
    assert isinstance(step, Speculative)
    chains: list[bytes] = []
    complete = delivered = closed = 0
    with patch.object(driftline.engine.state.changelog, "CHUNK_CHANGES_MIN", 1):
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


def test_closed_changes_are_kept_only_as_bytes() -> None:
    step, _ = make(Speculative, flow_of("collect"))
    assert isinstance(step, Speculative)
    elements = [((7, 0, number), (f"key {number}", "x"), 1) for number in range(CHUNK_CHANGES_MIN)]
    push(step, elements)
    [batch] = step.batches
    step.close(7)
    assert (len(batch.chunk), len(batch.undo_log)) == (0, CHANGE_ITEMS * CHUNK_CHANGES_MIN)
    step.close(8)
    assert len(batch.chunk) > CHUNK_CHANGES_MIN
    assert batch.undo_log == batch.values == batch.results == []


def test_settled_elements_release_their_memory() -> None:
    step, _ = make(Speculative, flow_of("join"))
    assert isinstance(step, Speculative)
    for time in range(1, 200):
        push(step, [((time, 0), ("a", "x"), 1), ((time, 1), ("b", "x"), 1)])
        push(step, [((time, 0, 1), ("a", "y"), 1), ((time, 0, 1), ("a", "y"), -1)])
        step.settle(time - 2)
    assert sum(len(batch.labels) for batch in step.batches) < 20
