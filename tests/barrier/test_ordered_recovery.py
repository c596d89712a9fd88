"""With label order, after a recovery: what leaves again; other outputs than before are noticed."""

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driftline.barrier.barrier import NOTHING
from driftline.barrier.ordered import OrderedBarrier
from driftline.engine.errors import DriftlineError, NotDeterministic
from driftline.engine.labels import INFINITY
from driftline.engine.sinks import MemoryConsumer
from driftline.engine.wire.bundles import running_checksum
from driftline.engine.wire.messages import Bundle
from tests.barrier.barriers import GROUPS, connected, hold, ordered


def run(barrier: OrderedBarrier, times: range, spoil: object = None) -> list[Bundle]:
    """Outputs 10 * time at these times, one bundle for two times; `spoil` is at time 4."""
    bundles = []
    for time in times:
        hold(barrier, ((time, 0), 0, 10 * time if time != 4 or spoil is None else spoil, 1))
        if time % 2 == 0:
            barrier.advance(time + 1)
            bundle = barrier.take_bundle(1)
            if bundle is not None:
                bundles.append(bundle)
                barrier.stored(bundle.t_last)
    return bundles


def after_first_run() -> list[Bundle]:
    """Bundles that end at the times 2, 4, 6."""
    barrier = ordered()
    connected(barrier)
    return run(barrier, range(1, 7))


@given(stored=st.integers(0, 3), snapshot=st.integers(0, 6))
def test_after_a_recovery_exactly_what_the_consumer_does_not_have_leaves(
    stored: int, snapshot: int
) -> None:
    """Whatever the consumer has, and whichever snapshot that is not ahead of it is used."""
    first = after_first_run()
    consumer = MemoryConsumer()
    for bundle in first[:stored]:
        consumer.deliver(bundle)
    start = 1 + min(snapshot, 2 * stored)  # the state as of a time that the consumer has reached
    blobs = [blob for bundle in first for blob in bundle.blobs][: start - 1]
    checksum = 0
    for blob in blobs:
        checksum = running_checksum(checksum, blob)
    again = ordered(start=start, checksum=checksum)
    last = consumer.last("barrier-0", GROUPS)
    again.last(last.t_last, last.checksum, last.blobs)
    assert again.delivered >= start
    for bundle in run(again, range(start, 9)):
        consumer.deliver(bundle)
    assert [(item.label, item.value) for item in consumer.items] == [
        ((time, 0), 10 * time) for time in range(1, 9)
    ]
    assert again.delivered == 9


def test_the_checksum_as_of_a_snapshot_is_that_of_everything_released_below_it() -> None:
    barrier = ordered()
    connected(barrier)
    first = run(barrier, range(1, 7))
    assert barrier.checksum_before(1) == 0
    assert barrier.checksum_before(3) == first[0].checksum
    assert barrier.checksum_before(5) == first[1].checksum
    assert barrier.checksum_before(100) == first[2].checksum


def test_checksums_do_not_depend_on_where_bundles_were_cut() -> None:
    barrier = ordered()
    connected(barrier)
    for time in range(1, 7):
        hold(barrier, ((time, 0), 0, 10 * time, 1))
    barrier.advance(7)
    whole = barrier.take_bundle(1)
    assert whole is not None
    assert whole.checksum == after_first_run()[-1].checksum


def test_a_replay_that_differs_is_noticed_and_named_by_its_first_label() -> None:
    bundle = after_first_run()[1]  # holds the times 3 and 4
    again = ordered()
    again.last(bundle.t_last, bundle.checksum, bundle.blobs)
    with pytest.raises(NotDeterministic, match=r"first seen at label \[4, 0\]"):
        run(again, range(1, 9), spoil="other")


def test_a_replay_that_differs_in_type_only_is_noticed() -> None:
    bundle = after_first_run()[1]
    again = ordered()
    again.last(bundle.t_last, bundle.checksum, bundle.blobs)
    with pytest.raises(NotDeterministic, match=r"\[4, 0\]"):
        run(again, range(1, 9), spoil=40.0)


def test_a_replay_that_lacks_an_output_is_noticed_though_nothing_comes_after_it() -> None:
    bundle = after_first_run()[0]
    again = ordered()
    again.last(bundle.t_last, bundle.checksum, bundle.blobs)
    hold(again, ((1, 0), 0, 10, 1))
    again.advance(2)
    with pytest.raises(NotDeterministic, match=r"first seen at label \[2, 0\]"):
        again.advance(3)


def test_a_replay_that_has_one_output_more_is_noticed_and_named_by_its_label() -> None:
    bundle = after_first_run()[1]
    again = ordered()
    again.last(bundle.t_last, bundle.checksum, bundle.blobs)
    hold(again, ((4, 0, 9), 0, "more", 1))
    with pytest.raises(NotDeterministic, match=r"first seen at label \[4, 0, 9\]"):
        run(again, range(1, 9))


def test_a_difference_before_the_last_bundle_is_noticed_and_said_to_be_there() -> None:
    bundle = after_first_run()[2]
    again = ordered()
    again.last(bundle.t_last, bundle.checksum, bundle.blobs)
    with pytest.raises(NotDeterministic, match="before the last bundle"):
        run(again, range(1, 9), spoil="other")


def test_a_difference_is_noticed_before_anything_new_leaves() -> None:
    bundle = after_first_run()[1]
    again = ordered()
    again.last(bundle.t_last, bundle.checksum, bundle.blobs)
    for time in range(1, 9):
        hold(again, ((time, 0), 0, "other", 1))
    with pytest.raises(NotDeterministic):
        again.advance(9)
    assert again.take_bundle(1) is None


def test_a_consumer_that_has_other_outputs_than_the_snapshot_is_noticed() -> None:
    first = after_first_run()
    barrier = ordered(start=5, checksum=first[1].checksum)
    with pytest.raises(DriftlineError):
        barrier.last(first[0].t_last, first[0].checksum, first[0].blobs)  # has lost a bundle
    barrier = ordered(start=5, checksum=first[1].checksum)
    with pytest.raises(DriftlineError):
        barrier.last(NOTHING, 0, ())  # has lost everything


def test_a_replay_keeps_no_outputs_but_those_it_compares() -> None:
    text = "x" * 1000
    barrier = ordered()
    connected(barrier)
    bundles = []
    for time in range(1, 1001):
        hold(barrier, ((time, 0), 0, text, 1))
        barrier.advance(time + 1)
        bundle = barrier.take_bundle(1)
        assert bundle is not None
        barrier.stored(bundle.t_last)
        bundles.append(bundle)
    last = bundles[-1]
    again = ordered()
    again.last(last.t_last, last.checksum, last.blobs)
    for time in range(1, 1001):
        hold(again, ((time, 0), 0, text, 1))
    tracemalloc.start()
    again.advance(1000)
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 200 * len(text), "the blobs of 999 times"
    again.advance(1001)


def test_a_run_that_has_ended_goes_on_with_later_outputs() -> None:
    """The end of a run is not the end of time: t_last is the time of the last output."""
    consumer = MemoryConsumer()
    for end in (6, 6, 8):
        last = consumer.last("barrier-0", GROUPS)
        barrier = ordered()
        barrier.last(last.t_last, last.checksum, last.blobs)
        for time in range(1, end + 1):
            hold(barrier, ((time, 0), 0, 10 * time, 1))
        barrier.advance(INFINITY)
        assert (barrier.delivered == INFINITY) is (last.t_last == end)
        while (bundle := barrier.take_bundle(1)) is not None:
            consumer.deliver(bundle)
            barrier.stored(bundle.t_last)
        barrier.validate()
        assert barrier.delivered == INFINITY
        assert consumer.last("barrier-0", GROUPS).t_last == end
    assert [item.value for item in consumer.items] == [10 * time for time in range(1, 9)]


def test_a_replay_that_ends_too_early_is_noticed_and_may_be_the_fault_of_the_input() -> None:
    bundle = after_first_run()[2]
    again = ordered()
    again.last(bundle.t_last, bundle.checksum, bundle.blobs)
    hold(again, *(((time, 0), 0, 10 * time, 1) for time in range(1, 5)))
    changed = "Or the input has changed, in a record from number 0 up to record 6"
    with pytest.raises(NotDeterministic, match=changed):
        again.advance(INFINITY)


def test_outputs_up_to_the_end_of_time_are_those_of_an_earlier_version() -> None:
    bundle = after_first_run()[2]
    again = ordered()
    again.last(INFINITY - 1, bundle.checksum, bundle.blobs)
    hold(again, *(((time, 0), 0, 10 * time, 1) for time in range(1, 7)))
    again.advance(INFINITY)
    assert again.delivered == INFINITY
    assert again.take_bundle(1) is None
