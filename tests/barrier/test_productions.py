"""In productions: nothing leaves before it is durable, and what is durable leaves once."""

import pytest

from driftline.barrier.barrier import NOTHING
from driftline.barrier.compared import ProductionBarrier
from driftline.engine.errors import StateMismatch
from driftline.engine.labels import INFINITY
from tests.barrier.barriers import connected, productions, values


def produce(barrier: ProductionBarrier, number: int, *outputs: tuple[int, str]) -> None:
    """A production of outputs at these times, on its way to the disk."""
    for time, value in outputs:
        barrier.hold(0, [(time, 0)], [value], None)
    barrier.seal(number)


def test_nothing_of_a_production_leaves_before_it_is_durable() -> None:
    barrier = productions()
    connected(barrier)
    produce(barrier, 1, (2, "x"), (1, "y"))
    barrier.hold(0, [(3, 0)], ["z"], None)
    assert barrier.take_bundle(1) is None
    barrier.commit(1)
    bundle = barrier.take_bundle(1)
    assert bundle is not None
    assert bundle.t_last == 1
    assert values(bundle) == ["x", "y"], "in the order of arrival"
    barrier.stored(1)
    assert barrier.take_bundle(1) is None


def test_what_could_not_be_written_leaves_with_the_production_after_it() -> None:
    barrier = productions()
    connected(barrier)
    produce(barrier, 1, (1, "x"))
    produce(barrier, 2, (2, "y"))
    barrier.commit(2)
    bundle = barrier.take_bundle(1)
    assert bundle is not None
    assert (bundle.t_last, values(bundle)) == (2, ["x", "y"])


def test_outputs_are_kept_until_the_consumer_has_them() -> None:
    barrier = productions()
    connected(barrier)
    for number in (1, 2):
        produce(barrier, number, (number, "x"))
        barrier.commit(number)
        barrier.take_bundle(1)
    assert barrier.forget() == []
    barrier.stored(1)
    assert barrier.forget() == [1]
    assert list(barrier.undelivered) == [2]


@pytest.mark.parametrize("has", [NOTHING, 1, 2, 3])
def test_after_a_recovery_what_the_consumer_lacks_of_durable_productions_leaves(has: int) -> None:
    first = productions()
    for number in (1, 2, 3):
        produce(first, number, (number, f"{number}"))
    again = productions()
    again.restore(3, first.undelivered)
    assert again.take_bundle(2) is None, "the consumer has not been asked"
    again.last(has, 0, ())
    bundle = again.take_bundle(2)
    if has == 3:
        assert bundle is None
    else:
        assert (bundle and bundle.t_last, values(bundle)) == (3, ["1", "2", "3"][max(has, 0) :])


def test_a_consumer_that_is_ahead_of_the_node_is_noticed() -> None:
    barrier = productions()
    barrier.restore(3, {})
    with pytest.raises(StateMismatch, match="outputs of production 4"):
        barrier.last(4, 0, ())


def test_what_is_delivered_is_processed_and_not_kept_any_more() -> None:
    barrier = productions()
    connected(barrier)
    produce(barrier, 1, (5, "x"), (3, "y"))
    barrier.commit(1)
    assert barrier.delivered == 0
    barrier.progress(8)
    assert barrier.delivered == 3
    barrier.take_bundle(1)
    barrier.stored(1)
    assert barrier.delivered == 8
    barrier.progress(INFINITY)
    assert barrier.delivered == INFINITY
