"""A function that failed: when that ends the run, and when it is a dead letter."""

import pytest

from driftline.barrier.compared import ImmediateBarrier
from driftline.barrier.ordered import OrderedBarrier
from driftline.engine.errors import FunctionFailed
from driftline.engine.operators.steps import FAILURES
from driftline.engine.wire.bundles import Item
from tests.barrier.barriers import GROUPS, connected, epochs, hold, items, ordered, productions

FAILURE = ("scan 'count'", "'a'", {"id": 1}, "ValueError: bad", "flow.py:1, in count: raise", "")


def test_a_provisional_failure_stops_nothing_and_a_final_one_does() -> None:
    barrier = connected(ordered())
    hold(barrier, ((1, 0), FAILURES, FAILURE, 1), ((1, 0), FAILURES, FAILURE, -1))
    hold(barrier, ((2, 0), FAILURES, FAILURE, 1))
    barrier.advance(2)
    with pytest.raises(FunctionFailed, match=r"operator .*count.* label \[2, 0\].*ValueError: bad"):
        barrier.advance(3)


def test_a_dead_letter_is_an_output_like_others() -> None:
    barrier = connected(OrderedBarrier("barrier-0", GROUPS, dead_letters=True))
    hold(barrier, ((2, 0), FAILURES, FAILURE, 1), ((1, 0), 0, "x", 1))
    barrier.advance(3)
    assert items(barrier.take_bundle(1)) == [
        Item((1, 0), 0, "x"),
        Item((2, 0), FAILURES, FAILURE),
    ]


def test_without_an_order_every_failure_is_final() -> None:
    for barrier in (epochs(), productions(), ImmediateBarrier("barrier-0", GROUPS)):
        with pytest.raises(FunctionFailed, match="ValueError: bad"):
            barrier.hold(FAILURES, [(1, 0)], [FAILURE], [1])
