"""A bundle is bounded in bytes. Where it is cut, t_last and the checksum are right."""

from __future__ import annotations

import pytest

from driftline.barrier.barrier import NOTHING, Barrier
from driftline.barrier.compared import ImmediateBarrier
from driftline.engine.labels import INFINITY
from driftline.engine.wire.messages import Bundle
from tests.barrier.barriers import GROUPS, connected, epochs, hold, ordered, productions, values

TEXT = "x" * 1000


def bundles(barrier: Barrier) -> list[Bundle]:
    """The bundles that leave, each of which is stored."""
    taken = []
    while (bundle := barrier.take_bundle(1)) is not None:
        barrier.validate()
        taken.append(bundle)
        barrier.stored(bundle.t_last)
        barrier.validate()
    assert barrier.waiting_bytes == 0
    return taken


def texts(times: range) -> list[object]:
    return [f"{time} {TEXT}" for time in times]


def fill(barrier: Barrier, times: range) -> None:
    barrier.bundle_bytes = 3000
    for time in times:
        hold(barrier, ((time, 0), 0, f"{time} {TEXT}", 1))


def test_in_label_order_the_cut_is_between_two_times() -> None:
    barrier = ordered()
    connected(barrier)
    fill(barrier, range(1, 11))
    barrier.advance(20)
    taken = bundles(barrier)
    assert [bundle.t_last for bundle in taken] == [3, 6, 9, 19]
    assert [value for bundle in taken for value in values(bundle)] == texts(range(1, 11))


@pytest.mark.parametrize("stored", range(4))
def test_a_replay_goes_on_behind_a_bundle_that_was_cut(stored: int) -> None:
    first = ordered()
    connected(first)
    fill(first, range(1, 11))
    first.advance(20)
    taken = bundles(first)
    has = taken[stored]
    again = ordered()
    again.last(has.t_last, has.checksum, has.blobs)
    fill(again, range(1, 11))
    again.advance(20)  # raises NotDeterministic if the checksum is not the one at the cut
    assert [value for bundle in bundles(again) for value in values(bundle)] == texts(
        range(min(has.t_last, 10) + 1, 11)
    )


def test_a_replay_keeps_no_outputs_that_are_not_compared() -> None:
    first = ordered()
    connected(first)
    fill(first, range(1, 11))
    first.advance(20)
    third = bundles(first)[2]
    again = ordered()
    again.last(third.t_last, third.checksum, third.blobs)
    fill(again, range(1, 11))
    again.advance(9)
    assert again._replay is not None
    assert len(again._replay.blobs) == len([7, 8])


def test_epochs_and_productions_are_not_cut() -> None:
    in_epochs = epochs()
    connected(in_epochs)
    for epoch in (1, 2):
        fill(in_epochs, range(10 * epoch, 10 * epoch + 5))
        in_epochs.seal(0, epoch)
        in_epochs.pre_commit(epoch)
    in_epochs.commit(2)
    in_productions = productions()
    connected(in_productions)
    for number in (1, 2):
        fill(in_productions, range(10 * number, 10 * number + 5))
        in_productions.seal(number)
        in_productions.commit(number)
    for barrier in (in_epochs, in_productions):
        taken = bundles(barrier)
        assert [bundle.t_last for bundle in taken] == [1, 2]
        assert list(map(values, taken)) == [texts(range(10, 15)), texts(range(20, 25))]


def test_without_an_order_each_bundle_has_the_next_number() -> None:
    barrier = ImmediateBarrier("barrier-0", GROUPS)
    connected(barrier)
    fill(barrier, range(1, 8))
    to_deliver = barrier.delivering
    first = barrier.take_bundle(1)
    fill(barrier, range(8, 11))
    assert first is not None
    assert first.t_last == NOTHING + 1
    barrier.stored(first.t_last)
    taken = [first, *bundles(barrier)]
    assert [bundle.t_last for bundle in taken] == list(range(len(taken)))
    until = [value for b in taken if b.t_last <= to_deliver for value in values(b)]
    assert until[:7] == texts(range(1, 8)), "what was held before is in these bundles"
    assert [value for bundle in taken for value in values(bundle)] == texts(range(1, 11))
    barrier.progress(INFINITY)
    assert barrier.delivered == INFINITY
