"""When outputs leave, and what is never sent again."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driftline.barrier.barrier import NOTHING, Barrier
from driftline.barrier.epochs import EpochBarrier
from driftline.barrier.immediate import ImmediateBarrier
from driftline.barrier.ordered import OrderedBarrier
from driftline.barrier.productions import ProductionBarrier
from driftline.engine.errors import DriftlineError, FunctionFailed, NotDeterministic, StateMismatch
from driftline.engine.labels import INFINITY, Label
from driftline.engine.order.steps import FAILURES
from driftline.engine.sinks import MemoryConsumer
from driftline.engine.wire.bundles import Item, from_blob, running_checksum
from driftline.engine.wire.codec import travelled
from driftline.engine.wire.messages import Bundle

GROUPS = (0, 63)
FAILURE = ("scan 'count'", "'a'", "{'id': 1}", "ValueError: bad", "flow.py:1, in count: raise")

Output = tuple[Label, int, object, int]
"""(label, sink, payload, sign)"""


def items(bundle: Bundle | None) -> list[Item]:
    assert bundle is not None
    return [item for blob in bundle.blobs for item in from_blob(blob)]


def values(bundle: Bundle | None) -> list[object]:
    return [item.value for item in items(bundle)]


def ordered(**options: int) -> OrderedBarrier:
    return OrderedBarrier("barrier-0", GROUPS, **options)  # type: ignore[arg-type]


def connected(barrier: Barrier) -> Barrier:
    barrier.last(NOTHING, 0, ())
    return barrier


def hold(barrier: Barrier, *outputs: Output) -> None:
    for label, sink, value, sign in outputs:
        barrier.hold(sink, [label], [value], None if sign > 0 else [sign])


# Ordered: release -----------------------------------------------------------------------------


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
def test_outputs_leave_once_in_label_order_and_only_below_the_frontier(
    found: list[tuple[Label, int, object]], seed: int, extra: list[tuple[Label, int, object]]
) -> None:
    """Whatever the order of arrival, the batches, the tombstones and the consumer's pace."""
    chance = Random(seed)
    spread = chance.choice([0.0, 5.0])
    events: list[tuple[float, Output]] = []
    for label, sink, value in found:
        events.append((label[0] + chance.random() * spread, (label, sink, value, 1)))
    for label, sink, value in extra:  # these are taken back
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
        barrier.hold(
            sink,
            [label for label, _, _, _ in batch],
            [value for _, _, value, _ in batch],
            None if all(sign > 0 for sign in signs) else signs,
        )
        least = min((label[0] for label, _, _, _ in arrivals), default=20)
        frontier = max(frontier, chance.choice([0, chance.randint(0, least), least]))
        barrier.advance(frontier)
        if barrier.outstanding is not None and chance.random() < 0.5:
            barrier.stored(barrier.outstanding.t_last)
        bundle = barrier.take_bundle(1)
        if bundle is not None:
            consumer.deliver(bundle)
        barrier.validate()
        assert all(item.label[0] < frontier for item in consumer.items)
    for _ in range(2):
        barrier.advance(INFINITY)
        if barrier.outstanding is not None:
            barrier.stored(barrier.outstanding.t_last)
        bundle = barrier.take_bundle(1)
        if bundle is not None:
            consumer.deliver(bundle)
            barrier.stored(bundle.t_last)
    wanted = [repr(Item(label, sink, value)) for label, sink, value in sorted(found, key=label_of)]
    assert list(map(repr, consumer.items)) == wanted
    assert barrier.delivered == INFINITY


def label_of(output: tuple[Label, int, object]) -> Label:
    return output[0]


def test_an_output_at_the_frontier_is_not_final_yet() -> None:
    barrier = connected(ordered())
    hold(barrier, ((5, 0), 0, "x", 1))
    barrier.advance(5)
    assert barrier.take_bundle(1) is None
    barrier.advance(6)
    bundle = barrier.take_bundle(7)
    assert values(bundle) == ["x"]
    assert bundle is not None
    assert (bundle.t_last, bundle.incarnation, bundle.groups) == (5, 7, GROUPS)


def test_a_tombstone_takes_back_the_one_that_looks_the_same_and_not_its_equal() -> None:
    barrier = connected(ordered())
    hold(barrier, ((1, 0), 0, 1, 1), ((1, 0), 0, True, 1), ((1, 0), 0, 1.0, 1))
    hold(barrier, ((1, 0), 0, True, -1), ((1, 0), 0, 1, -1))
    barrier.advance(2)
    assert list(map(repr, values(barrier.take_bundle(1)))) == ["1.0"]


def test_a_time_whose_outputs_were_all_taken_back_leaves_nothing() -> None:
    barrier = connected(ordered())
    hold(barrier, ((1, 0), 0, "x", 1), ((1, 0), 0, "x", -1))
    barrier.advance(2)
    assert barrier.take_bundle(1) is None
    assert barrier.delivered == 2


def test_an_output_that_cannot_be_stored_does_no_harm_once_it_is_taken_back() -> None:
    barrier = connected(ordered())
    hold(barrier, ((1, 0), 0, {"a", "set"}, 1), ((1, 0), 0, {"a", "set"}, -1))
    hold(barrier, ((1, 0), 0, "x", 1))
    barrier.advance(2)
    assert values(barrier.take_bundle(1)) == ["x"]


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


# Ordered: the consumer ------------------------------------------------------------------------


def test_one_bundle_is_outstanding_and_what_becomes_ready_meanwhile_goes_into_the_next() -> None:
    barrier = connected(ordered())
    hold(barrier, *[((time, 0), 0, time, 1) for time in (1, 2, 3)])
    barrier.advance(2)
    assert values(barrier.take_bundle(1)) == [1]
    barrier.advance(3)
    barrier.advance(4)
    assert barrier.take_bundle(1) is None
    barrier.stored(99)  # of another bundle
    assert barrier.take_bundle(1) is None
    barrier.stored(1)
    bundle = barrier.take_bundle(1)
    assert values(bundle) == [2, 3]
    assert bundle is not None
    assert bundle.t_last == 3


def test_delivered_is_what_the_consumer_has_and_not_what_has_been_sent() -> None:
    barrier = ordered()
    assert barrier.delivered <= 0
    connected(barrier)
    hold(barrier, ((4, 0), 0, "x", 1))
    barrier.advance(4)
    assert barrier.delivered == 4
    barrier.advance(9)
    assert barrier.delivered <= 4
    bundle = barrier.take_bundle(1)
    assert bundle is not None
    assert barrier.delivered <= 4
    barrier.stored(bundle.t_last)
    assert barrier.delivered == 9


def test_a_consumer_that_comes_back_without_the_outstanding_bundle_gets_it_again() -> None:
    barrier = connected(ordered())
    hold(barrier, ((1, 0), 0, "x", 1), ((2, 0), 0, "y", 1))
    barrier.advance(2)
    first = barrier.take_bundle(1)
    barrier.advance(3)
    barrier.last(NOTHING, 0, ())
    assert barrier.outstanding is first
    assert barrier.take_bundle(1) is None
    barrier.stored(1)
    assert values(barrier.take_bundle(1)) == ["y"]


def test_a_consumer_that_comes_back_with_the_outstanding_bundle_does_not_get_it_again() -> None:
    barrier = connected(ordered())
    hold(barrier, ((1, 0), 0, "x", 1), ((2, 0), 0, "y", 1))
    barrier.advance(2)
    first = barrier.take_bundle(1)
    assert first is not None
    barrier.advance(3)
    barrier.last(first.t_last, first.checksum, first.blobs)
    assert values(barrier.take_bundle(1)) == ["y"]


def test_a_consumer_that_has_lost_what_it_had_stored_is_noticed() -> None:
    barrier = connected(ordered())
    hold(barrier, ((1, 0), 0, "x", 1))
    barrier.advance(2)
    barrier.take_bundle(1)
    barrier.stored(1)
    with pytest.raises(DriftlineError):
        barrier.last(NOTHING, 0, ())


# Ordered: recovery and the guard of determinism -----------------------------------------------


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


# Epochs ---------------------------------------------------------------------------------------


def epochs() -> EpochBarrier:
    return EpochBarrier("barrier-0", GROUPS)


def fill(barrier: EpochBarrier, epoch: int, *found: tuple[int, object]) -> object:
    """Make outputs (chain, payload) of an epoch; what is pre-committed, as it is read back."""
    for number, (chain, value) in enumerate(found):
        barrier.chain = chain
        barrier.hold(0, [(epoch, 0, number)], [value], None)
    for chain in range(2):
        barrier.seal(chain, epoch)
    return travelled(barrier.pre_commit(epoch))


def test_nothing_of_an_epoch_leaves_before_it_is_committed() -> None:
    barrier = epochs()
    connected(barrier)
    barrier.hold(0, [(1, 0)], ["x"], None)
    assert barrier.take_bundle(1) is None
    barrier.seal(0, 1)
    assert barrier.take_bundle(1) is None
    assert barrier.pre_commit(1)
    assert barrier.take_bundle(1) is None
    barrier.progress(INFINITY)
    assert barrier.take_bundle(1) is None
    barrier.commit(1)
    bundle = barrier.take_bundle(1)
    assert values(bundle) == ["x"]
    assert bundle is not None
    assert bundle.t_last == 1


def test_a_repeated_commit_changes_nothing() -> None:
    barrier = epochs()
    connected(barrier)
    fill(barrier, 1, (0, "x"))
    barrier.commit(1)
    barrier.commit(1)
    assert values(barrier.take_bundle(1)) == ["x"]
    barrier.commit(1)
    barrier.stored(1)
    barrier.commit(1)
    assert barrier.take_bundle(1) is None


def test_a_chain_that_is_ahead_makes_outputs_of_the_next_epoch() -> None:
    barrier = epochs()
    connected(barrier)
    for chain, value in ((0, "old"), (1, "old too")):
        barrier.chain = chain
        barrier.hold(0, [(chain, 0)], [value], None)
    barrier.seal(0, 1)
    barrier.chain = 0
    barrier.hold(0, [(7, 0)], ["new"], None)
    barrier.seal(1, 1)
    barrier.pre_commit(1)
    barrier.commit(1)
    assert values(barrier.take_bundle(1)) == ["old", "old too"]
    barrier.stored(1)
    barrier.seal(0, 2)
    barrier.seal(1, 2)
    barrier.pre_commit(2)
    barrier.commit(2)
    assert values(barrier.take_bundle(1)) == ["new"]


def test_what_could_not_be_committed_is_pre_committed_with_the_next_epoch() -> None:
    barrier = epochs()
    connected(barrier)
    fill(barrier, 1, (0, "x"))
    durable = fill(barrier, 2, (0, "y"))
    barrier.commit(2)
    assert values(barrier.take_bundle(1)) == ["x", "y"]
    again = epochs()
    again.restore(2, durable)
    connected(again)
    assert values(again.take_bundle(2)) == ["x", "y"]
    again = epochs()
    again.restore(2, durable)
    again.last(1, 0, ())
    assert values(again.take_bundle(2)) == ["y"]


@pytest.mark.parametrize("has", [0, 1, 2])
def test_after_a_recovery_only_what_the_consumer_lacks_of_a_committed_epoch_leaves(
    has: int,
) -> None:
    consumer = MemoryConsumer()
    first = epochs()
    connected(first)
    pre_committed: object = None
    for epoch in (1, 2):
        pre_committed = fill(first, epoch, (0, f"{epoch}x"), (1, f"{epoch}y"))
        first.commit(epoch)
        bundle = first.take_bundle(1)
        assert bundle is not None
        if epoch <= has:
            consumer.deliver(bundle)
        first.stored(epoch)
    again = epochs()
    again.restore(2, pre_committed)
    assert again.take_bundle(2) is None
    last = consumer.last("barrier-0", GROUPS)
    again.last(last.t_last, last.checksum, last.blobs)
    bundle = again.take_bundle(2)
    if has == 2:
        assert bundle is None
    else:
        assert values(bundle) == ["2x", "2y"]


def test_outputs_that_were_never_committed_are_gone_after_a_recovery() -> None:
    first = epochs()
    connected(first)
    durable = fill(first, 1, (0, "x"))
    first.commit(1)
    fill(first, 2, (0, "y"))
    again = epochs()
    again.restore(1, durable)
    connected(again)
    assert values(again.take_bundle(2)) == ["x"]
    again.stored(1)
    assert again.take_bundle(2) is None


def test_a_bounded_run_has_delivered_only_when_its_last_epoch_has_been() -> None:
    barrier = epochs()
    connected(barrier)
    barrier.hold(0, [(1, 0)], ["x"], None)
    barrier.progress(INFINITY)
    assert barrier.delivered == 0
    barrier.seal(0, 1)
    barrier.pre_commit(1)
    assert barrier.delivered == 0
    barrier.commit(1)
    assert barrier.delivered == 0
    bundle = barrier.take_bundle(1)
    assert bundle is not None
    assert barrier.delivered == 0
    barrier.stored(bundle.t_last)
    assert barrier.delivered == INFINITY


def test_without_an_order_every_failure_is_final() -> None:
    for barrier in (epochs(), productions(), ImmediateBarrier("barrier-0", GROUPS)):
        with pytest.raises(FunctionFailed, match="ValueError: bad"):
            barrier.hold(FAILURES, [(1, 0)], [FAILURE], [1])


# Productions ----------------------------------------------------------------------------------


def productions() -> ProductionBarrier:
    return ProductionBarrier("barrier-0", GROUPS)


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
    assert list(barrier.kept) == [2]


@pytest.mark.parametrize("has", [NOTHING, 1, 2, 3])
def test_after_a_recovery_what_the_consumer_lacks_of_durable_productions_leaves(has: int) -> None:
    first = productions()
    for number in (1, 2, 3):
        produce(first, number, (number, f"{number}"))
    again = productions()
    again.restore(3, first.kept)
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


# Immediate ------------------------------------------------------------------------------------


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
