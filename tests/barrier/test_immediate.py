"""Without a guarantee: outputs leave at once."""

from driftline.barrier.compared import ImmediateBarrier
from driftline.engine.labels import INFINITY
from driftline.engine.wire.bundles import Item
from tests.barrier.barriers import GROUPS, connected, items, values


def test_outputs_leave_at_once_in_the_order_of_arrival() -> None:
    barrier = ImmediateBarrier("barrier-0", GROUPS)
    barrier.hold(0, [(9, 0)], ["late"], None)
    assert barrier.take_bundle(1) is None
    connected(barrier)
    barrier.hold(1, [(1, 0), (5, 0)], ["early", "middle"], None)
    bundle = barrier.take_bundle(1)
    assert items(bundle) == [
        Item((9, 0), 0, "late"),
        Item((1, 0), 1, "early"),
        Item((5, 0), 1, "middle"),
    ]
    barrier.hold(0, [(2, 0)], ["next"], None)
    assert barrier.take_bundle(1) is None
    assert bundle is not None
    barrier.stored(bundle.t_last)
    assert values(barrier.take_bundle(1)) == ["next"]


def test_bundles_are_numbered_on_from_the_consumers_last_one() -> None:
    barrier = ImmediateBarrier("barrier-0", GROUPS)
    barrier.last(41, 0, ())
    for number in (42, 43):
        barrier.hold(0, [(1, 0)], ["x"], None)
        bundle = barrier.take_bundle(1)
        assert bundle is not None
        assert bundle.t_last == number
        barrier.stored(number)


def test_at_once_everything_is_delivered_when_the_run_is_complete_and_nothing_waits() -> None:
    barrier = ImmediateBarrier("barrier-0", GROUPS)
    connected(barrier)
    barrier.hold(0, [(1, 0)], ["x"], None)
    barrier.progress(INFINITY)
    assert barrier.delivered == 0
    bundle = barrier.take_bundle(1)
    assert bundle is not None
    assert barrier.delivered == 0
    barrier.stored(bundle.t_last)
    assert barrier.delivered == INFINITY


def test_what_is_made_later_does_not_hold_back_what_is_delivered() -> None:
    barrier = ImmediateBarrier("barrier-0", GROUPS)
    connected(barrier)
    for time in range(1, 5):  # there is always an output under way: never is nothing waiting
        barrier.hold(0, [(time, 0)], ["x"], None)
        bundle = barrier.take_bundle(1)
        assert bundle is not None
        barrier.hold(0, [(time + 10, 0)], ["y"], None)
        barrier.progress(time + 1)
        assert barrier.delivered == (time if time > 1 else 0)
        barrier.stored(bundle.t_last)
        rest = barrier.take_bundle(1)
        assert rest is not None
        assert barrier.delivered == (time if time > 1 else 0), "its last output is under way"
        barrier.hold(0, [(time + 20, 0)], ["z"], None)
        barrier.stored(rest.t_last)
        assert barrier.delivered == time + 1
        last = barrier.take_bundle(1)
        assert last is not None
        barrier.stored(last.t_last)
