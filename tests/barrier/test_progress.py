"""A barrier follows the frontier of its node's own tracker, or the master's; never both."""

import pytest

from driftline.barrier.barrier import NOTHING, Barrier
from driftline.barrier.compared import EpochBarrier, ImmediateBarrier, ProductionBarrier
from driftline.barrier.ordered import OrderedBarrier
from driftline.engine.labels import INFINITY

GROUPS = (0, 63)


def test_in_label_order_an_output_waits_for_the_frontier_of_its_own_node() -> None:
    barrier = OrderedBarrier("barrier-0", GROUPS)
    barrier.last(NOTHING, 0, ())
    barrier.hold(0, [(5, 0)], ["x"], None)
    barrier.progress(INFINITY)
    assert barrier.take_bundle(1) is None
    barrier.advance(6)
    assert barrier.take_bundle(1) is not None


@pytest.mark.parametrize("kind", [EpochBarrier, ImmediateBarrier, ProductionBarrier])
def test_without_label_order_the_delivered_frontier_follows_the_master(
    kind: type[Barrier],
) -> None:
    barrier = kind("barrier-0", GROUPS)
    barrier.last(NOTHING, 0, ())
    barrier.advance(INFINITY)
    assert barrier.delivered == 0
    barrier.progress(INFINITY)
    assert barrier.delivered == INFINITY
