"""Ordered barriers: final outputs leave in label order; recoveries lose and repeat none."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driftline.barrier.barrier import NO_T_LAST, Barrier
from driftline.barrier.ordered import UNKNOWN_CHECKSUM, OrderedBarrier
from driftline.connectors.sinks import MemoryConsumer
from driftline.engine.errors import DriftlineError, NotDeterministic, StateMismatch
from driftline.engine.labels import INFINITY, Label
from driftline.engine.wire.bundles import Item, running_checksum
from driftline.engine.wire.messages import Bundle
from tests.barrier.barriers import GROUPS, Output, connected, hold, ordered, taken, values

# Release --------------------------------------------------------------------------------------


outputs = st.lists(
    st.tuples(
        st.tuples(st.integers(1, 12), st.integers(0, 1), st.integers(0, 2)),
        st.integers(0, 1),
        st.sampled_from(["x", 1, 1.0, True, None, ("x", 0)]),
    ),
    max_size=25,
    unique_by=lambda output: output[0],
)


@given(found=outputs, seed=st.integers(0, 2**32), extra=outputs)
@settings(max_examples=200)
def test_outputs_below_the_frontier_are_released_once_in_label_order(
    found: list[tuple[Label, int, object]], seed: int, extra: list[tuple[Label, int, object]]
) -> None:
    """This holds for any order of arrival, batches, tombstones and pace of the consumer."""
    chance = Random(seed)
    spread = chance.choice([0.0, 5.0])
    events: list[tuple[float, Output]] = []
    for label, sink, value in found:
        events.append((label[0] + chance.random() * spread, (label, sink, value, 1)))
    for label, sink, value in extra:  # retracted by a tombstone later
        at = label[0] + chance.random() * spread
        events += [(at, (label, sink, value, 1)), (at + 2, (label, sink, value, -1))]
    events.sort(key=lambda event: event[0])
    arrivals = [output for _, output in events]
    barrier = connected(ordered())
    consumer = MemoryConsumer()
    frontier = 0
    while arrivals:
        sink = arrivals[0][1]
        size = 1
        while size < min(len(arrivals), chance.randint(1, 5)) and arrivals[size][1] == sink:
            size += 1
        batch, arrivals = arrivals[:size], arrivals[size:]
        signs = [sign for _, _, _, sign in batch]
        barrier.add_outputs(
            sink,
            [label for label, _, _, _ in batch],
            [value for _, _, value, _ in batch],
            None if all(sign > 0 for sign in signs) else signs,
        )
        least = min((label[0] for label, _, _, _ in arrivals), default=20)
        frontier = max(frontier, chance.choice([0, chance.randint(0, least), least]))
        barrier.advance(frontier)
        if barrier.outstanding is not None and chance.random() < 0.5:
            barrier.mark_stored(barrier.outstanding.t_last)
        bundle = barrier.take_bundle(1)
        if bundle is not None:
            consumer.deliver(bundle)
        barrier.validate()
        assert all(item.label[0] < frontier for item in consumer.items)
    for _ in range(2):
        barrier.advance(INFINITY)
        if barrier.outstanding is not None:
            barrier.mark_stored(barrier.outstanding.t_last)
        bundle = barrier.take_bundle(1)
        if bundle is not None:
            consumer.deliver(bundle)
            barrier.mark_stored(bundle.t_last)
    wanted = [repr(Item(label, sink, value)) for label, sink, value in sorted(found, key=label_of)]
    assert list(map(repr, consumer.items)) == wanted
    assert barrier.delivered == INFINITY


def label_of(output: tuple[Label, int, object]) -> Label:
    return output[0]


def test_tombstone_retracts_only_an_output_of_the_same_type() -> None:
    barrier = connected(ordered())
    hold(barrier, ((1, 0), 0, 1, 1), ((1, 0), 0, True, 1), ((1, 0), 0, 1.0, 1))
    hold(barrier, ((1, 0), 0, True, -1), ((1, 0), 0, 1, -1))
    barrier.advance(2)
    assert list(map(repr, values(barrier.take_bundle(1)))) == ["1.0"]


# The consumer ---------------------------------------------------------------------------------


def test_one_bundle_is_in_flight_and_later_outputs_join_the_next() -> None:
    barrier = connected(ordered())
    hold(barrier, *[((time, 0), 0, time, 1) for time in (1, 2, 3)])
    barrier.advance(2)
    assert values(barrier.take_bundle(1)) == [1]
    barrier.advance(3)
    barrier.advance(4)
    assert barrier.take_bundle(1) is None
    barrier.mark_stored(99)  # for another bundle
    assert barrier.take_bundle(1) is None
    barrier.mark_stored(1)
    bundle = barrier.take_bundle(1)
    assert values(bundle) == [2, 3]
    assert bundle is not None
    assert bundle.t_last == 3


@pytest.mark.parametrize("has_it", [False, True])
def test_unacked_bundle_is_resent_if_the_consumer_lacks_it(
    has_it: bool,
) -> None:
    barrier = connected(ordered())
    hold(barrier, ((1, 0), 0, "x", 1), ((2, 0), 0, "y", 1))
    barrier.advance(2)
    first = taken(barrier)
    barrier.advance(3)
    if has_it:
        barrier.handle_last_bundle(first.t_last, first.checksum, first.blobs)
    else:
        barrier.handle_last_bundle(NO_T_LAST, 0, ())
        assert barrier.outstanding is first
        assert barrier.take_bundle(1) is None
        barrier.mark_stored(1)
    assert values(barrier.take_bundle(1)) == ["y"]
    with pytest.raises(DriftlineError):  # the consumer lost stored outputs
        barrier.handle_last_bundle(NO_T_LAST, 0, ())


def run(barrier: Barrier, times: range, spoil: object = None) -> list[Bundle]:
    """Release outputs 10 * time, a bundle per two times; `spoil` replaces the output at time 4."""
    bundles = []
    for time in times:
        hold(barrier, ((time, 0), 0, 10 * time if time != 4 or spoil is None else spoil, 1))
        if time % 2 == 0:
            barrier.advance(time + 1)
            bundle = barrier.take_bundle(1)
            if bundle is not None:
                bundles.append(bundle)
                barrier.mark_stored(bundle.t_last)
    return bundles


def after_first_run() -> list[Bundle]:
    """Return bundles that end at the times 2, 4, 6."""
    return run(connected(ordered()), range(1, 7))


def replaying(bundle: Bundle, **options: int) -> OrderedBarrier:
    """Return a barrier after a recovery; `bundle` is the consumer's last one."""
    again = ordered(**options)
    again.handle_last_bundle(bundle.t_last, bundle.checksum, bundle.blobs)
    return again


@given(stored=st.integers(0, 3), snapshot=st.integers(0, 6))
def test_recovery_releases_exactly_the_outputs_the_consumer_lacks(
    stored: int, snapshot: int
) -> None:
    """This holds for any number of stored bundles, and any snapshot that is not ahead of them."""
    first = after_first_run()
    consumer = MemoryConsumer()
    for bundle in first[:stored]:
        consumer.deliver(bundle)
    start = 1 + min(snapshot, 2 * stored)  # a snapshot is never ahead of the consumer
    blobs = [blob for bundle in first for blob in bundle.blobs][: start - 1]
    checksum = 0
    for blob in blobs:
        checksum = running_checksum(checksum, blob)
    again = ordered(start=start, checksum=checksum)
    last = consumer.last("barrier-0", GROUPS)
    again.handle_last_bundle(last.t_last, last.checksum, last.blobs)
    assert again.delivered >= start
    for bundle in run(again, range(start, 9)):
        consumer.deliver(bundle)
    assert [(item.label, item.value) for item in consumer.items] == [
        ((time, 0), 10 * time) for time in range(1, 9)
    ]
    assert again.delivered == 9


@pytest.mark.parametrize(
    ("last", "spoil", "more", "named"),
    [
        (1, "other", (), r"first difference is at label \[4, 0\]"),
        (1, 40.0, (), r"first difference is at label \[4, 0\]"),
        (1, None, (((4, 0, 9), 0, "more", 1),), r"first difference is at label \[4, 0, 9\]"),
        (2, "other", (), "before the last bundle"),
    ],
)
def test_differing_replay_is_detected_with_its_first_label(
    last: int, spoil: object, more: tuple[Output, ...], named: str
) -> None:
    again = replaying(after_first_run()[last])
    hold(again, *more)
    with pytest.raises(NotDeterministic, match=named):
        run(again, range(1, 9), spoil)
    assert again.take_bundle(1) is None, "no new output leaves"


def test_replay_without_trailing_outputs_is_detected() -> None:
    first = after_first_run()
    again = replaying(first[0])
    hold(again, ((1, 0), 0, 10, 1))
    again.advance(2)
    with pytest.raises(NotDeterministic, match=r"first difference is at label \[2, 0\]"):
        again.advance(3)
    again = replaying(first[2])
    hold(again, *(((time, 0), 0, 10 * time, 1) for time in range(1, 5)))
    changed = "Or the input has changed, from the beginning up to record 6"
    with pytest.raises(NotDeterministic, match=changed):
        again.advance(INFINITY)


def test_consumer_behind_the_snapshot_is_detected() -> None:
    first = after_first_run()
    with pytest.raises(DriftlineError):
        replaying(first[0], start=5, checksum=first[1].checksum)


def test_ended_run_resumes_with_later_outputs() -> None:
    """At the end of a run, t_last is the time of the last output, not INFINITY."""
    consumer = MemoryConsumer()
    for end in (6, 6, 8):
        last = consumer.last("barrier-0", GROUPS)
        barrier = ordered()
        barrier.handle_last_bundle(last.t_last, last.checksum, last.blobs)
        for time in range(1, end + 1):
            hold(barrier, ((time, 0), 0, 10 * time, 1))
        barrier.advance(INFINITY)
        assert (barrier.delivered == INFINITY) is (last.t_last == end)
        while (bundle := barrier.take_bundle(1)) is not None:
            consumer.deliver(bundle)
            barrier.mark_stored(bundle.t_last)
        barrier.validate()
        assert barrier.delivered == INFINITY
        assert consumer.last("barrier-0", GROUPS).t_last == end
    assert [item.value for item in consumer.items] == [10 * time for time in range(1, 9)]


OLD, NEW = "old", "new"


@dataclass
class DurableState:
    """State that survives crashes: the newest snapshot, and the consumer."""

    consumer: MemoryConsumer = field(default_factory=MemoryConsumer)
    start: int = 1
    checksum: int = 0
    taken: str = OLD

    def run(self, code: str, until: int, lost: int, cut: int, odd: bool = False) -> None:
        """Process records up to `until`, then crash.

        The consumer gets no bundle with times above `until - lost`. A snapshot is taken `cut`
        records before the consumer's position, unless an earlier one is newer. `odd` changes the
        outputs.
        """
        barrier = ordered(start=self.start, checksum=self.checksum, same_code=self.taken == code)
        last = self.consumer.last("barrier-0", GROUPS)
        barrier.handle_last_bundle(last.t_last, last.checksum, last.blobs)
        for time in range(self.start, until + 1):
            if time % 3 or code == OLD:  # the new code emits fewer outputs
                hold(barrier, ((time, 0), 0, (code, time, odd), 1))
            barrier.advance(time + 1)
            bundle = barrier.take_bundle(1)
            if bundle is not None and bundle.t_last <= until - lost:
                self.consumer.deliver(bundle)
                barrier.mark_stored(bundle.t_last)
        barrier.validate()
        if (time := barrier.delivered - cut) > self.start:
            self.start, self.checksum, self.taken = time, barrier.checksum_before(time), code

    def outputs(self) -> list[tuple[int, object]]:
        return [(item.label[0], item.value) for item in self.consumer.items]


runs = st.tuples(st.integers(0, 12), st.integers(0, 4), st.integers(0, 6))


@given(before=st.lists(runs, max_size=3), after=st.lists(runs, max_size=4))
def test_outputs_of_old_code_stay_and_those_of_new_code_follow(
    before: list[tuple[int, int, int]], after: list[tuple[int, int, int]]
) -> None:
    place, until = DurableState(), 0
    for more, lost, cut in before:
        until = max(place.start - 1, until) + more
        place.run(OLD, until, lost, cut)
    t_last = max((time for time, _ in place.outputs()), default=0)
    for more, lost, cut in after:
        until += more
        place.run(NEW, until, lost, cut)
    place.run(NEW, until + 6, 0, 0)
    assert place.outputs() == [(time, (OLD, time, False)) for time in range(1, t_last + 1)] + [
        (time, (NEW, time, False)) for time in range(t_last + 1, until + 7) if time % 3
    ]


def changed(cut: int) -> DurableState:
    """Run old code up to 10 and new code up to 14; the last snapshot is `cut` before that."""
    place = DurableState()
    place.run(OLD, 10, lost=0, cut=5)
    place.run(NEW, 14, lost=0, cut=cut)
    return place


def test_a_snapshot_among_outputs_by_other_code_has_no_checksum() -> None:
    assert (changed(cut=6).start, changed(cut=6).checksum) == (9, UNKNOWN_CHECKSUM)
    assert (changed(cut=3).start, changed(cut=3).checksum != UNKNOWN_CHECKSUM) == (12, True)


def test_replay_is_compared_again_after_a_snapshot_by_new_code() -> None:
    place = changed(cut=3)
    with pytest.raises(NotDeterministic, match=r"\[13, 0\]|\[14, 0\]"):
        place.run(NEW, 20, 0, 0, odd=True)


def test_missing_outputs_are_detected_after_a_code_change() -> None:
    place = changed(cut=6)
    barrier = ordered(start=place.start, checksum=place.checksum)
    with pytest.raises(StateMismatch, match="they have been changed or removed"):
        barrier.handle_last_bundle(NO_T_LAST, 0, ())
