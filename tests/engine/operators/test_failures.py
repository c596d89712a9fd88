"""A function that raises: its element fails, with the reason, and nothing else does."""

from driftline.engine.flow.flow import Flow
from driftline.engine.operators.speculative import Speculative
from tests.engine.operators.arrivals import push
from tests.engine.operators.operators import flow_of, make


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
