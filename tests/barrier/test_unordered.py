"""Barriers of the comparison policies: when outputs leave, and which may be repeated."""

from __future__ import annotations

import pytest

from driftline.barrier.barrier import NO_T_LAST
from driftline.barrier.unordered import EpochBarrier, ImmediateBarrier, ProductionBarrier
from driftline.connectors.sinks import MemoryConsumer
from driftline.engine.errors import StateMismatch
from driftline.engine.labels import INFINITY
from driftline.engine.wire.bundles import Item
from driftline.engine.wire.codec import pack_rows, round_trip
from tests.barrier.barriers import GROUPS, connected, epochs, items, productions, taken, values


def test_outputs_leave_at_once_in_the_order_of_arrival() -> None:
    barrier = ImmediateBarrier("barrier-0", GROUPS)
    barrier.add_outputs(0, [(9, 0)], ["late"], None)
    assert barrier.take_bundle(1) is None
    connected(barrier)
    barrier.add_outputs(1, [(1, 0), (5, 0)], ["early", "middle"], None)
    bundle = barrier.take_bundle(1)
    assert items(bundle) == [
        Item((9, 0), 0, "late"),
        Item((1, 0), 1, "early"),
        Item((5, 0), 1, "middle"),
    ]
    barrier.add_outputs(0, [(2, 0)], ["next"], None)
    assert barrier.take_bundle(1) is None
    assert bundle is not None
    barrier.mark_stored(bundle.t_last)
    assert values(barrier.take_bundle(1)) == ["next"]


def test_later_outputs_do_not_hold_back_the_delivered_frontier() -> None:
    barrier = ImmediateBarrier("barrier-0", GROUPS)
    connected(barrier)
    for time in range(1, 5):  # some output is always in flight, so the barrier is never empty
        barrier.add_outputs(0, [(time, 0)], ["x"], None)
        bundle = taken(barrier)
        barrier.add_outputs(0, [(time + 10, 0)], ["y"], None)
        barrier.record_processed(time + 1)
        assert barrier.delivered == (time if time > 1 else 0)
        barrier.mark_stored(bundle.t_last)
        rest = taken(barrier)
        assert barrier.delivered == (time if time > 1 else 0), "its last output is in flight"
        barrier.add_outputs(0, [(time + 20, 0)], ["z"], None)
        barrier.mark_stored(rest.t_last)
        assert barrier.delivered == time + 1
        last = taken(barrier)
        barrier.mark_stored(last.t_last)


def fill(barrier: EpochBarrier, epoch: int, *outputs: tuple[int, object]) -> object:
    """Add outputs (chain, payload) of an epoch. Return its pre-commit, as decoded."""
    for number, (chain, value) in enumerate(outputs):
        barrier.current_port = chain
        barrier.add_outputs(0, [(epoch, 0, number)], [value], None)
    for chain in range(2):
        barrier.seal(chain, epoch)
    return round_trip(barrier.pre_commit(epoch))


def test_epoch_outputs_are_released_only_after_commit() -> None:
    barrier = epochs()
    connected(barrier)
    barrier.add_outputs(0, [(1, 0)], ["x"], None)
    assert barrier.take_bundle(1) is None
    barrier.seal(0, 1)
    assert barrier.take_bundle(1) is None
    assert barrier.pre_commit(1)
    assert barrier.take_bundle(1) is None
    barrier.record_processed(INFINITY)
    assert barrier.take_bundle(1) is None
    barrier.commit(1)
    bundle = barrier.take_bundle(1)
    assert values(bundle) == ["x"]
    assert bundle is not None
    assert bundle.t_last == 1


def test_chain_that_is_ahead_makes_outputs_of_the_next_epoch() -> None:
    barrier = epochs()
    connected(barrier)
    for chain, value in ((0, "old"), (1, "old too")):
        barrier.current_port = chain
        barrier.add_outputs(0, [(chain, 0)], [value], None)
    barrier.seal(0, 1)
    barrier.current_port = 0
    barrier.add_outputs(0, [(7, 0)], ["new"], None)
    barrier.seal(1, 1)
    barrier.pre_commit(1)
    barrier.commit(1)
    assert values(barrier.take_bundle(1)) == ["old", "old too"]
    barrier.mark_stored(1)
    barrier.seal(0, 2)
    barrier.seal(1, 2)
    barrier.pre_commit(2)
    barrier.commit(2)
    assert values(barrier.take_bundle(1)) == ["new"]


def test_uncommitted_outputs_are_pre_committed_with_the_next_epoch() -> None:
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
    again.handle_last_bundle(1, 0, ())
    assert values(again.take_bundle(2)) == ["y"]


@pytest.mark.parametrize("has", [0, 1, 2])
def test_recovery_releases_only_missing_outputs_of_committed_epochs(
    has: int,
) -> None:
    consumer = MemoryConsumer()
    first = epochs()
    connected(first)
    pre_committed: object = None
    for epoch in (1, 2):
        pre_committed = fill(first, epoch, (0, f"{epoch}x"), (1, f"{epoch}y"))
        first.commit(epoch)
        bundle = taken(first)
        if epoch <= has:
            consumer.deliver(bundle)
        first.mark_stored(epoch)
    again = epochs()
    again.restore(2, pre_committed)
    assert again.take_bundle(2) is None
    last = consumer.last("barrier-0", GROUPS)
    again.handle_last_bundle(last.t_last, last.checksum, last.blobs)
    rest = again.take_bundle(2)
    if has == 2:
        assert rest is None
    else:
        assert values(rest) == ["2x", "2y"]


def test_outputs_leave_packed_in_the_order_of_arrival() -> None:
    barrier = epochs()
    connected(barrier)
    for time in (7, 3):
        nobody_looks_at: list[object] = [object(), object()]
        labels: list[tuple[int, ...]] = [(time, 0, child) for child in range(2)]
        packed = pack_rows([f"{time}a", f"{time}b"])
        barrier.add_outputs(0, labels, nobody_looks_at, None, packed)
    barrier.seal(0, 1)
    barrier.pre_commit(1)
    barrier.commit(1)
    assert values(barrier.take_bundle(1)) == ["7a", "7b", "3a", "3b"]


def test_bounded_run_is_delivered_after_its_last_epoch() -> None:
    barrier = epochs()
    connected(barrier)
    barrier.add_outputs(0, [(1, 0)], ["x"], None)
    barrier.record_processed(INFINITY)
    assert barrier.delivered == 0
    barrier.seal(0, 1)
    barrier.pre_commit(1)
    assert barrier.delivered == 0
    barrier.commit(1)
    assert barrier.delivered == 0
    bundle = taken(barrier)
    assert barrier.delivered == 0
    barrier.mark_stored(bundle.t_last)
    assert barrier.delivered == INFINITY


def test_outputs_of_the_next_epoch_do_not_hold_back_delivered() -> None:
    barrier = epochs()
    connected(barrier)
    barrier.current_port = 0
    for epoch in range(1, 4):
        barrier.add_outputs(0, [(epoch * 10, 0)], ["x"], None)
        barrier.record_processed(epoch * 10 + 1)
        barrier.seal(0, epoch)
        barrier.add_outputs(0, [(epoch * 10 + 5, 0)], ["of the next epoch"], None)
        barrier.record_processed(epoch * 10 + 6)
        barrier.seal(1, epoch)
        barrier.pre_commit(epoch)
        assert barrier.delivered == (epoch * 10 - 9 if epoch > 1 else 0)
        barrier.commit(epoch)
        bundle = taken(barrier)
        barrier.mark_stored(bundle.t_last)
        assert barrier.delivered == epoch * 10 + 1


def produce(barrier: ProductionBarrier, number: int, *outputs: tuple[int, str]) -> None:
    """Seal a production of outputs at these times; it is not durable yet."""
    for time, value in outputs:
        barrier.add_outputs(0, [(time, 0)], [value], None)
    barrier.seal(number)


def test_production_outputs_are_released_only_when_durable() -> None:
    barrier = productions()
    connected(barrier)
    produce(barrier, 1, (2, "x"), (1, "y"))
    barrier.add_outputs(0, [(3, 0)], ["z"], None)
    assert barrier.take_bundle(1) is None
    barrier.commit(1)
    bundle = taken(barrier)
    assert bundle.t_last == 1
    assert values(bundle) == ["x", "y"], "in the order of arrival"
    barrier.mark_stored(1)
    assert barrier.take_bundle(1) is None


@pytest.mark.parametrize("has", [NO_T_LAST, 1, 2, 3])
def test_recovery_releases_durable_productions_the_consumer_lacks(has: int) -> None:
    first = productions()
    for number in (1, 2, 3):
        produce(first, number, (number, f"{number}"))
    again = productions()
    again.restore(3, first.undelivered)
    assert again.take_bundle(2) is None, "the consumer has not been asked"
    again.handle_last_bundle(has, 0, ())
    bundle = again.take_bundle(2)
    if has == 3:
        assert bundle is None
    else:
        assert (bundle and bundle.t_last, values(bundle)) == (3, ["1", "2", "3"][max(has, 0) :])


def test_consumer_ahead_of_the_node_is_detected() -> None:
    barrier = productions()
    barrier.restore(3, {})
    with pytest.raises(StateMismatch, match="outputs of production 4"):
        barrier.handle_last_bundle(4, 0, ())
