"""With label order: which outputs leave, in which order, and who has them."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driftline.barrier.barrier import NOTHING
from driftline.engine.errors import DriftlineError
from driftline.engine.labels import INFINITY, Label
from driftline.engine.sinks import MemoryConsumer
from driftline.engine.wire.bundles import Item
from tests.barrier.barriers import GROUPS, Output, connected, hold, ordered, values

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


# The consumer ---------------------------------------------------------------------------------


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
