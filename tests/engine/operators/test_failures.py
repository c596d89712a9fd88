"""A function that raises: its element fails, with the reason, and nothing else does."""

from __future__ import annotations

import pytest

from driftline.barrier.ordered import OrderedBarrier
from driftline.deploy.node.assembly import BufferingGate
from driftline.engine.flow.flow import Flow
from driftline.engine.operators.speculative import Speculative
from driftline.engine.state.managed import ValueState
from tests.engine.operators.operators import Collected, flow_of, make, push


def test_a_function_that_raises_leaves_no_trace_in_the_state_and_others_are_not_affected() -> None:
    flow = flow_of("fail")
    step, collected = make(Speculative, flow)
    push(step, [((1, 0), ("a", "uv"), 1), ((2, 0), ("a", "x"), 1), ((3, 0), ("b", "x"), 1)])
    assert collected.failed() == [((1, 0), "ValueError: 'uv' is awkward")]
    assert [(label, value) for label, sink, value in collected.net() if sink == 0] == [
        ((2, 0), ("a", "x")),
        ((3, 0), ("b", "x")),
    ]


def test_a_failure_that_was_true_in_a_wrong_order_only_is_taken_back() -> None:
    step, collected = make(Speculative, flow_of("fail"))
    push(step, [((2, 0), ("a", "uv"), 1)])
    assert collected.failed() == [((2, 0), "ValueError: 'uv' is awkward")]
    push(step, [((1, 0), ("a", "x"), 1)])
    assert collected.failed() == []
    assert [value for _, _, value in collected.net()] == [("a", "x"), ("a", "xuv")]


def test_a_failure_says_operator_key_record_and_line() -> None:
    step, collected = make(Speculative, flow_of("fail"))
    push(step, [((1, 0), ("a", "uv"), 1)])
    [(label, _, value)] = collected.net()
    assert isinstance(value, tuple)
    operator, key, record, error, line, text = value
    assert (label, operator, key, record, text) == ((1, 0), "op", "'a'", ("a", "uv"), "")
    assert error == "ValueError: 'uv' is awkward"
    assert "operators.py" in line
    assert "in fail_on_awkward_lengths" in line


def test_an_operator_that_returns_no_iterable_fails_at_its_element() -> None:
    flow = Flow("wrong")
    flow.source("in").key_by(0).process(lambda _, element: "text", name="op").sink()
    step, collected = make(Speculative, flow)
    step.push([(1, 0)], [("a", "x")], None)
    [(label, error)] = collected.failed()
    assert label == (1, 0)
    assert "must return an iterable" in str(error)


# What the protocol says can never come is noticed where it comes, in production, too


def operator() -> Speculative:
    flow = Flow("never")
    flow.source("in").key_by(lambda _: "key").scan(
        lambda value, last: value, ValueState[str]("last"), name="op"
    ).sink()
    collected = Collected()
    return Speculative(flow.vertices[1], collected, collected.failures)


def test_a_tombstone_takes_back_the_element_of_its_label_and_no_other() -> None:
    """Also where another element has the same payload."""
    step = operator()
    step.push([(1, 0), (2, 0), (3, 0)], ["other", "same", "same"], None)
    with pytest.raises(AssertionError, match="a tombstone for"):
        step.push([(1, 0)], ["same"], [-1])
    step = operator()
    step.push([(2, 0)], ["same"], None)
    with pytest.raises(AssertionError, match="a tombstone for"):
        step.push([(1, 0)], ["same"], [-1])


def test_nothing_comes_to_an_operator_below_what_was_closed() -> None:
    step = operator()
    step.push([(5, 0)], ["a"], None)
    step.close(5)
    step.push([(5, 1)], ["b"], None)
    with pytest.raises(AssertionError, match=r"'op'.*time 4 after 5 was closed"):
        step.push([(4, 0)], ["c"], None)


def test_nothing_comes_to_a_barrier_below_what_was_released() -> None:
    barrier = OrderedBarrier("barrier-0", (0, 127))
    barrier.hold(0, [(5, 0)], ["a"], None)
    barrier.advance(6)
    with pytest.raises(AssertionError, match="time 5; outputs up to 5 have left"):
        barrier.hold(0, [(6, 0), (5, 1)], ["b", "c"], None)


def test_nothing_comes_to_a_gate_below_what_was_released() -> None:
    gate = BufferingGate(1, lambda: 1)
    assert not gate.due(5)
    gate.push([(5, 0)], ["a"], None)
    with pytest.raises(AssertionError, match=r"time 4, but .* below 5"):
        gate.push([(4, 0)], ["b"], None)
