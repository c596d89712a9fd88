"""Barriers and consumers without a safeguard: outputs are lost or duplicated.

A consumer ignores a bundle that it has stored. This hides a missing filter of the barrier only if
the repeated bundle has the same bounds as the first one, so the simulation needs both safeguards.

The fence of consumers matters only for a message of a crashed process that arrives after its
successor has asked for the last bundle: `deploy/node/test_lost_slow_and_stale.py` has such a run.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from unittest.mock import patch

from driftline.barrier.barrier import NO_T_LAST
from driftline.barrier.ordered import OrderedBarrier
from driftline.barrier.unordered import EpochBarrier
from driftline.connectors.sinks.memory import MemoryConsumer
from driftline.deploy.roles.consumer import ConsumerServer
from driftline.engine.errors import Unavailable
from driftline.engine.wire.messages import Bundle, BundleStored


@contextmanager
def t_last_is_not_fetched() -> Iterator[None]:
    """Release outputs that the consumer has already stored."""
    ask = OrderedBarrier.handle_last_bundle

    def last(self: OrderedBarrier, t_last: int, checksum: int, blobs: tuple[bytes, ...]) -> None:
        first = not self.connected
        ask(self, t_last, checksum, blobs)
        if first:
            self.t_last = NO_T_LAST

    with patch.object(OrderedBarrier, "handle_last_bundle", last):
        yield


@contextmanager
def t_last_is_neither_fetched_nor_checked() -> Iterator[None]:
    """As above, with a consumer that stores each bundle that it receives."""

    def store(self: ConsumerServer, sender: str, bundle: Bundle) -> None:
        self._consumer(bundle.barrier).deliver(bundle)
        self.send(sender, BundleStored(bundle.barrier, bundle.incarnation, bundle.t_last))

    deliver = MemoryConsumer.deliver

    def deliver_anything(self: MemoryConsumer, bundle: Bundle) -> None:
        self._records.pop(bundle.barrier, None)
        deliver(self, bundle)

    with (
        t_last_is_not_fetched(),
        patch.object(ConsumerServer, "_store", store),
        patch.object(MemoryConsumer, "deliver", deliver_anything),
    ):
        yield


def outputs_count_as_delivered_when_ready() -> AbstractContextManager[object]:
    """Let a snapshot cover outputs that no consumer has stored."""
    return patch.object(OrderedBarrier, "delivered", property(lambda self: self.released_to + 1))


def pre_commits_lose_their_epoch() -> AbstractContextManager[object]:
    """Count outputs that were pre-committed twice, due to a late commit, for the later epoch."""
    restore = EpochBarrier.restore

    def mutated(self: EpochBarrier, epoch: int, pre_committed: object) -> None:
        if isinstance(pre_committed, tuple) and pre_committed:
            blobs = tuple(blob for _, of_epoch in pre_committed for blob in of_epoch)
            pre_committed = ((epoch, blobs),)
        restore(self, epoch, pre_committed)

    return patch.object(EpochBarrier, "restore", mutated)


def consumers_have_no_fence() -> AbstractContextManager[object]:
    """Store bundles of earlier incarnations."""
    return patch.object(ConsumerServer, "_is_fenced_off", lambda self, message: False)


def failed_bundle_counts_as_stored() -> AbstractContextManager[object]:
    """Acknowledge bundles that may not be durable."""
    store = ConsumerServer._store

    def mutated(self: ConsumerServer, sender: str, bundle: Bundle) -> None:
        try:
            store(self, sender, bundle)
        except Unavailable:
            self.send(sender, BundleStored(bundle.barrier, bundle.incarnation, bundle.t_last))

    return patch.object(ConsumerServer, "_store", mutated)
