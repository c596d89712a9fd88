"""Protocol violations are detected where they arrive, also in production."""

from __future__ import annotations

import pytest

from driftline.barrier.ordered import OrderedBarrier
from driftline.deploy.node.pipeline import BufferingGate
from driftline.engine.flow.flow import Flow
from driftline.engine.operators.speculative import Speculative
from driftline.engine.state.managed import ValueState
from tests.engine.operators.operators import Collected


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
    with pytest.raises(AssertionError, match=r"'op'.*time 4 after 5 was closed"):
        step.push([(4, 0)], ["c"], None)


def test_barrier_rejects_outputs_below_the_released_time() -> None:
    barrier = OrderedBarrier("barrier-0", (0, 127))
    barrier.add_outputs(0, [(5, 0)], ["a"], None)
    barrier.advance(6)
    with pytest.raises(AssertionError, match="time 5; outputs up to 5 have left"):
        barrier.add_outputs(0, [(6, 0), (5, 1)], ["b", "c"], None)


def test_gate_rejects_elements_below_the_released_time() -> None:
    gate = BufferingGate(1, lambda: 1)
    assert not gate.due(5)
    gate.push([(5, 0)], ["a"], None)
    with pytest.raises(AssertionError, match=r"time 4, but .* below 5"):
        gate.push([(4, 0)], ["b"], None)
