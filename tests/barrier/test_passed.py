"""A consumer that is told how far the outputs are complete knows it in the end, though it is told
without an answer."""

from tests.barrier.barriers import connected, ordered


def test_what_it_was_told_before_it_came_back_it_is_told_again() -> None:
    barrier = connected(ordered())
    barrier.tells = True
    barrier.advance(6)
    told = barrier.take_passed(1)
    assert told is not None
    assert told.blobs == ()
    assert told.t_last == 5
    assert barrier.take_passed(1) is None
    barrier.last(3, 0, ())
    assert barrier.take_passed(1) == told
    barrier.last(5, 0, ())
    assert barrier.take_passed(1) is None, "it knows"
