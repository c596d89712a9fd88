"""A barrier's dialogue with its consumer, in one incarnation.

Takes `LastBundle` and `BundleStored` (consumer) and the time. Gives `FetchLast`, at first and
whenever an answer is waited for too long, and bundles, again if the consumer has not had them.

A consumer, above all a remote one, may be replaced by another process at any time, and what it said
before may come late. So questions carry how many bundles have been sent and stored so far, answers
the same number: an answer counts only if nothing has happened since that could make it untrue. All
questions in between are the same question, so that a slow answer counts, too.

Invariant: since the question that an answer counts for, no bundle has been sent or stored.
"""

from __future__ import annotations

from driftline.barrier.barrier import Barrier
from driftline.engine.wire.messages import Bundle, BundleStored, FetchLast, LastBundle

ASK_EVERY_S = 1.0


class Delivery:
    """What a node says to its consumer for a barrier."""

    def __init__(self, barrier: Barrier, incarnation: int, address: str) -> None:
        self.barrier = barrier
        self.ask_at = 0.0
        """When the consumer is asked next, if it still owes an answer then."""
        self._incarnation = incarnation
        self._address = address
        self._exchanged = 0
        """Bundles sent and stored so far."""

    def question(self, now: float) -> FetchLast | None:
        """What to ask, if it is time to."""
        if now < self.ask_at:
            return None
        self.ask_at = now + ASK_EVERY_S
        barrier = self.barrier
        if barrier.connected and barrier.outstanding is None:
            return None
        return FetchLast(
            barrier.name, self._incarnation, barrier.groups, self._address, self._exchanged
        )

    def bundle(self, now: float) -> Bundle | None:
        """Outputs that may leave, if there are any."""
        bundle = self.barrier.take_bundle(self._incarnation)
        if bundle is not None:
            self._exchanged += 1
            self.ask_at = now + ASK_EVERY_S
        return bundle

    def stored(self, message: BundleStored) -> None:
        """The consumer has a bundle."""
        if message.incarnation == self._incarnation:
            self._exchanged += 1
            self.barrier.stored(message.t_last)

    def last(self, message: LastBundle) -> Bundle | None:
        """An answer has come. Returns the bundle that is to be sent again, if it had not come.

        Raises StateMismatch if the consumer cannot be the one that has our outputs.
        """
        if (message.incarnation, message.number) != (self._incarnation, self._exchanged):
            return None
        outstanding = self.barrier.outstanding
        self.barrier.last(message.t_last, message.checksum, message.blobs)
        if outstanding is None or self.barrier.outstanding is not outstanding:
            return None
        self._exchanged += 1
        return outstanding
