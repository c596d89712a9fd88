"""Behaviour common to all barriers: failures, progress, empty bundles, the size of bundles."""

from __future__ import annotations

import pytest

from driftline.barrier.barrier import NO_T_LAST, Barrier
from driftline.barrier.ordered import OrderedBarrier
from driftline.barrier.unordered import EpochBarrier, ImmediateBarrier, ProductionBarrier
from driftline.engine.errors import FunctionFailed
from driftline.engine.labels import INFINITY
from driftline.engine.operators.steps import FAILURES
from driftline.engine.wire.bundles import Item
from driftline.engine.wire.messages import Bundle
from tests.barrier.barriers import (
    GROUPS,
    connected,
    epochs,
    hold,
    items,
    ordered,
    productions,
    taken,
    values,
)

FAILURE = ("scan 'count'", "'a'", {"id": 1}, "ValueError: bad", "flow.py:1, in count: raise", "")


def test_only_a_final_failure_stops_the_run() -> None:
    barrier = connected(ordered())
    hold(barrier, ((1, 0), FAILURES, FAILURE, 1), ((1, 0), FAILURES, FAILURE, -1))
    hold(barrier, ((2, 0), FAILURES, FAILURE, 1))
    barrier.advance(2)
    with pytest.raises(FunctionFailed, match=r"operator .*count.* label \[2, 0\].*ValueError: bad"):
        barrier.advance(3)


def test_dead_letter_is_an_ordinary_output() -> None:
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
            barrier.add_outputs(FAILURES, [(1, 0)], [FAILURE], [1])


@pytest.mark.parametrize("kind", [EpochBarrier, ImmediateBarrier, ProductionBarrier])
def test_without_label_order_the_delivered_frontier_follows_the_master(
    kind: type[Barrier],
) -> None:
    barrier = kind("barrier-0", GROUPS)
    barrier.handle_last_bundle(NO_T_LAST, 0, ())
    barrier.advance(INFINITY)
    assert barrier.delivered == 0
    barrier.record_processed(INFINITY)
    assert barrier.delivered == INFINITY


def barrier(tells: bool = True) -> OrderedBarrier:
    found = OrderedBarrier("barrier-0", (0, 63))
    found.reports_progress = tells
    found.handle_last_bundle(NO_T_LAST, 0, ())
    return found


def test_barrier_reports_each_progress_once() -> None:
    found = barrier()
    found.advance(5)
    report = found.take_progress_report(1)
    assert report is not None
    assert (report.blobs, report.t_last, report.groups) == ((), 4, (0, 63))
    assert found.take_progress_report(1) is None
    found.advance(7)
    report = found.take_progress_report(1)
    assert report is not None
    assert report.t_last == 6


def test_barrier_reports_no_progress_while_outputs_are_pending() -> None:
    found = barrier()
    found.add_outputs(0, [(2, 0)], ["a"], None)
    found.advance(5)
    assert found.take_progress_report(1) is None
    bundle = taken(found)
    assert bundle.t_last == 4
    found.advance(9)
    assert found.take_progress_report(1) is None
    found.mark_stored(4)
    report = found.take_progress_report(1)
    assert report is not None
    assert (report.t_last, report.checksum) == (8, bundle.checksum)


def test_replay_is_compared_at_the_reported_progress() -> None:
    found = barrier()
    found.add_outputs(0, [(2, 0)], ["a"], None)
    found.advance(3)
    taken(found)
    found.mark_stored(2)
    found.advance(9)
    report = found.take_progress_report(1)
    assert report is not None
    replay = OrderedBarrier("barrier-0", (0, 63), start=1, checksum=0)
    replay.reports_progress = True
    replay.handle_last_bundle(report.t_last, report.checksum, report.blobs)
    replay.add_outputs(0, [(2, 0)], ["a"], None)
    replay.advance(9)
    assert replay.take_bundle(2) is None
    assert replay.take_progress_report(2) is None
    replay.add_outputs(0, [(11, 0)], ["b"], None)
    replay.advance(12)
    after = replay.take_bundle(2)
    assert after is not None
    assert len(after.blobs) == 1


def test_barrier_repeats_its_progress_report_after_a_reconnect() -> None:
    found = connected(ordered())
    found.reports_progress = True
    found.advance(6)
    report = found.take_progress_report(1)
    assert report is not None
    assert report.blobs == ()
    assert report.t_last == 5
    assert found.take_progress_report(1) is None
    found.handle_last_bundle(3, 0, ())
    assert found.take_progress_report(1) == report
    found.handle_last_bundle(5, 0, ())
    assert found.take_progress_report(1) is None, "the consumer knows it"


TEXT = "x" * 1000


def bundles(barrier: Barrier) -> list[Bundle]:
    """Take and store bundles until none is left. Return them."""
    taken = []
    while (bundle := barrier.take_bundle(1)) is not None:
        barrier.validate()
        taken.append(bundle)
        barrier.mark_stored(bundle.t_last)
        barrier.validate()
    assert barrier.waiting_bytes == 0
    return taken


def texts(times: range) -> list[object]:
    return [f"{time} {TEXT}" for time in times]


def fill(barrier: Barrier, times: range) -> None:
    barrier.bundle_bytes = 3000
    for time in times:
        hold(barrier, ((time, 0), 0, f"{time} {TEXT}", 1))


def test_ordered_bundles_are_split_between_times() -> None:
    barrier = ordered()
    connected(barrier)
    fill(barrier, range(1, 11))
    barrier.advance(20)
    taken = bundles(barrier)
    assert [bundle.t_last for bundle in taken] == [3, 6, 9, 19]
    assert [value for bundle in taken for value in values(bundle)] == texts(range(1, 11))


@pytest.mark.parametrize("stored", range(4))
def test_replay_resumes_after_a_split_bundle(stored: int) -> None:
    first = ordered()
    connected(first)
    fill(first, range(1, 11))
    first.advance(20)
    taken = bundles(first)
    has = taken[stored]
    again = ordered()
    again.handle_last_bundle(has.t_last, has.checksum, has.blobs)
    fill(again, range(1, 11))
    again.advance(20)  # raises NotDeterministic if the checksum differs at the cut
    assert [value for bundle in bundles(again) for value in values(bundle)] == texts(
        range(min(has.t_last, 10) + 1, 11)
    )


def test_epoch_and_production_bundles_are_not_split() -> None:
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


def test_unordered_bundles_have_consecutive_numbers() -> None:
    barrier = ImmediateBarrier("barrier-0", GROUPS)
    connected(barrier)
    fill(barrier, range(1, 8))
    to_deliver = barrier.target_t_last
    first = barrier.take_bundle(1)
    fill(barrier, range(8, 11))
    assert first is not None
    assert first.t_last == NO_T_LAST + 1
    barrier.mark_stored(first.t_last)
    taken = [first, *bundles(barrier)]
    assert [bundle.t_last for bundle in taken] == list(range(len(taken)))
    until = [value for b in taken if b.t_last <= to_deliver for value in values(b)]
    assert until[:7] == texts(range(1, 8)), "these bundles include the outputs held before"
    assert [value for bundle in taken for value in values(bundle)] == texts(range(1, 11))
    barrier.record_processed(INFINITY)
    assert barrier.delivered == INFINITY
