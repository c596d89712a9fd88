"""Delivery: a barrier's dialogue with its consumer, in one incarnation.

Takes: `LastBundle` and `BundleStored` (consumer), and the time. Gives: `FetchLast` at first, and
again while an answer is overdue; bundles, and again each bundle that the consumer did not get;
and empty ones that need no answer, to a consumer that is told how far the outputs are. That one is
asked once a second: it may have been started again, and lack what it was told.

Another process may take the place of a consumer at any time, and messages of the earlier process
may come late. So each question carries the number of bundles sent and stored so far, and its answer
carries the same number. An answer with an older number is out of date, and is ignored. A question
that is repeated has the same number, so a slow answer counts, too.

Invariant: between a question and the answer that counts, no bundle is sent or stored.
"""

from __future__ import annotations

from driftline.barrier.barrier import Barrier
from driftline.engine.wire.messages import Bundle, BundleStored, FetchLast, LastBundle

ASK_EVERY_S = 1.0
"""Seconds until an overdue answer is asked for again."""


class Delivery:
    """The dialogue of one barrier."""

    def __init__(self, barrier: Barrier, incarnation: int, address: str) -> None:
        self.barrier = barrier
        self.ask_at = 0.0
        """When the consumer is asked next (seconds, monotonic), if an answer is overdue then."""
        self._incarnation = incarnation
        self._address = address
        self.sent_at = 0.0
        """When the newest bundle was sent first (seconds, monotonic)."""
        self.unanswered = 0
        """Questions since the last answer."""
        self._exchanged = 0
        """The number of bundles sent plus the number of bundles stored."""

    def question(self, now: float) -> FetchLast | None:
        """The question to send now; None if no answer is overdue."""
        if now < self.ask_at:
            return None
        self.ask_at = now + ASK_EVERY_S
        barrier = self.barrier
        if barrier.connected and barrier.outstanding is None and not barrier.tells:
            self.unanswered = 0
            return None
        self.unanswered += 1
        return FetchLast(
            barrier.name, self._incarnation, barrier.groups, self._address, self._exchanged
        )

    def bundle(self, now: float) -> Bundle | None:
        """The next bundle to send; None if no output may leave now."""
        bundle = self.barrier.take_bundle(self._incarnation)
        if bundle is not None:
            self._exchanged += 1
            self.sent_at = now
            self.ask_at = now + ASK_EVERY_S
        return bundle

    def passed(self) -> Bundle | None:
        """An empty bundle to send, see `Barrier.take_passed`."""
        return self.barrier.take_passed(self._incarnation)

    def stored(self, message: BundleStored) -> None:
        """The consumer has stored a bundle."""
        if message.incarnation == self._incarnation:
            self.unanswered = 0
            self._exchanged += 1
            self.barrier.stored(message.t_last)

    def last(self, message: LastBundle) -> Bundle | None:
        """An answer has come. Returns the bundle to send again, if the consumer has not got it.

        Raises StateMismatch if the consumer's outputs do not fit this node's state.
        """
        self.unanswered = 0
        if (message.incarnation, message.number) != (self._incarnation, self._exchanged):
            return None
        outstanding = self.barrier.outstanding
        self.barrier.last(message.t_last, message.checksum, message.blobs)
        if outstanding is None or self.barrier.outstanding is not outstanding:
            return None
        self._exchanged += 1
        return outstanding
