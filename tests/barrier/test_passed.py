"""A barrier that has nothing to send tells how far its outputs are complete."""

from driftline.barrier.barrier import NOTHING
from driftline.barrier.ordered import OrderedBarrier
from tests.barrier.barriers import connected, ordered


def barrier(tells: bool = True) -> OrderedBarrier:
    found = OrderedBarrier("barrier-0", (0, 63))
    found.tells = tells
    found.last(NOTHING, 0, ())
    return found


def test_it_tells_once_how_far_it_is() -> None:
    found = barrier()
    found.advance(5)
    told = found.take_passed(1)
    assert told is not None
    assert (told.blobs, told.t_last, told.groups) == ((), 4, (0, 63))
    assert found.take_passed(1) is None
    found.advance(7)
    told = found.take_passed(1)
    assert told is not None
    assert told.t_last == 6


def test_it_tells_nothing_while_outputs_wait_or_are_under_way() -> None:
    found = barrier()
    found.hold(0, [(2, 0)], ["a"], None)
    found.advance(5)
    assert found.take_passed(1) is None
    bundle = found.take_bundle(1)
    assert bundle is not None
    assert bundle.t_last == 4
    found.advance(9)
    assert found.take_passed(1) is None
    found.stored(4)
    told = found.take_passed(1)
    assert told is not None
    assert (told.t_last, told.checksum) == (8, bundle.checksum)


def test_a_consumer_that_takes_nothing_else_is_not_told() -> None:
    found = barrier(tells=False)
    found.advance(5)
    assert found.take_passed(1) is None


def test_what_it_has_told_is_where_a_replay_is_compared() -> None:
    found = barrier()
    found.hold(0, [(2, 0)], ["a"], None)
    found.advance(3)
    bundle = found.take_bundle(1)
    assert bundle is not None
    found.stored(2)
    found.advance(9)
    told = found.take_passed(1)
    assert told is not None
    replay = OrderedBarrier("barrier-0", (0, 63), start=1, checksum=0)
    replay.tells = True
    replay.last(told.t_last, told.checksum, told.blobs)
    replay.hold(0, [(2, 0)], ["a"], None)
    replay.advance(9)
    assert replay.take_bundle(2) is None
    assert replay.take_passed(2) is None
    replay.hold(0, [(11, 0)], ["b"], None)
    replay.advance(12)
    after = replay.take_bundle(2)
    assert after is not None
    assert len(after.blobs) == 1


def test_what_it_was_told_before_it_came_back_it_is_told_again() -> None:
    found = connected(ordered())
    found.tells = True
    found.advance(6)
    told = found.take_passed(1)
    assert told is not None
    assert told.blobs == ()
    assert told.t_last == 5
    assert found.take_passed(1) is None
    found.last(3, 0, ())
    assert found.take_passed(1) == told
    found.last(5, 0, ())
    assert found.take_passed(1) is None, "it knows"
