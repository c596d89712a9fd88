"""Functions may raise any exception; KeyboardInterrupt propagates to the caller."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NoReturn

import pytest

from driftline import Flow, FlowTest, ValueState, run, run_reference
from driftline.engine.operators.context import Failure

RAISED = [SystemExit, GeneratorExit, asyncio.CancelledError, StopIteration]


def flow_of(kind: str, function: Callable[[object], object]) -> Flow:
    """Return a flow with the function in an operator, or as a key."""
    flow = Flow(kind)
    records = flow.source("in", of=int)
    if kind == "key_by":
        records.key_by(function).scan(lambda x, state: x, ValueState[int]("x")).sink()
    elif kind == "scan":
        records.key_by(str).scan(lambda x, state: function(x), ValueState[int]("x")).sink()
    elif kind == "filter":
        records.filter(function).sink()
    else:
        records.map(function).sink()
    return flow


@pytest.mark.parametrize("kind", ["map", "filter", "key_by", "scan"])
@pytest.mark.parametrize("error", RAISED)
def test_a_function_that_raises_anything_has_failed(kind: str, error: type[BaseException]) -> None:
    def fail(record: object) -> object:
        if record == 2:
            raise error
        return record

    flow = flow_of(kind, fail)
    expected = list(run_reference(flow, [[1, 2, 3]], dead_letters=True))
    [value] = [item.value for item in expected if item.sink == -1]
    assert isinstance(value, tuple)
    failure = Failure.from_payload(value)
    assert failure.error.startswith(error.__name__)
    assert "in fail: raise error" in failure.line
    assert list(run(flow, [[1, 2, 3]], dead_letters=True)) == expected
    with FlowTest(flow, dead_letters=True) as test:
        for record in (1, 2, 3):
            test.send(record)
        assert test.failures == [failure]


@pytest.mark.parametrize("kind", ["map", "filter", "key_by", "scan"])
def test_keyboard_interrupt_in_a_function_is_for_the_caller(kind: str) -> None:
    def interrupted(record: object) -> NoReturn:
        raise KeyboardInterrupt

    flow = flow_of(kind, interrupted)
    for ran in (run_reference(flow, [[1]], dead_letters=True), run(flow, [[1]], dead_letters=True)):
        with pytest.raises(KeyboardInterrupt):
            list(ran)
