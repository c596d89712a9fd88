"""Delivery: a barrier's dialogue with its consumer, and how far the nodes have delivered.

`Delivery` takes `LastBundle` and `BundleStored` (consumer), and the time. It gives `FetchLast` at
first, and again while an answer is overdue; bundles, and again each bundle that the consumer did
not get; and empty ones that need no answer, to a consumer that is told how far the outputs are.
Another process may take the place of a consumer at any time, and messages of the earlier process
may come late. So each question carries the number of bundles sent and stored so far, and an answer
with an older number is ignored. Invariant: between a question and the answer that counts, no bundle
is sent or stored.

`DeliveryGossip` replaces the master's `Progress` while the master is silent (label order): each
node tells the fronts and the other nodes how far its own outputs are delivered, and the least of
all is what the master would say. So the data path goes on without one. After a while a node settles
its states by that, too, or it would keep an undo record of every change; a snapshot as of an
earlier time, which the master may have asked for, is then refused and taken again later.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf

from driftline.barrier.barrier import Barrier
from driftline.engine.errors import MalformedMessage
from driftline.engine.wire.messages import Bundle, BundleStored, FetchLast, LastBundle

ASK_EVERY_S = 1.0
"""Seconds until an overdue answer is asked for again."""

SILENT_AFTER_S = 0.02
"""Seconds without news of the master, while there are some, after which nodes tell themselves. At
high load it speaks every millisecond, and windows are full after some ten."""

TELL_EVERY_S = 0.005
"""How often a node tells how far it is, at most."""

SETTLE_AFTER_S = 2.0
"""Seconds without news of the master after which nodes settle; it repeats itself every second."""


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


class DeliveryGossip:
    """What one node tells in an incarnation from time `start`; `others`: the other nodes.

    Takes: `Progress` (master), `Delivered` (nodes), what is delivered of this node, the time.
    Gives: when to tell how much, and up to which time to settle. Invariant: consumers have all
    outputs of all nodes below the time that is settled. No message is sent while the master speaks.
    """

    def __init__(self, others: Iterable[str], start: int) -> None:
        self._of_others = dict.fromkeys(others, start)
        self._by_master = start
        self._since = inf
        """Since when this node knows more than the master has said."""
        self._told = start
        self.delivered = start
        """The consumer has the outputs of this node below this time."""
        self.settled = 0
        """Elements below this time were settled without the master: no snapshot can be earlier."""
        self.tell_by = inf
        """When `delivered` has to be told."""

    def progress(self, delivered: int, now: float) -> None:
        """The master has said up to where all is delivered."""
        self._by_master = max(self._by_master, delivered)
        self._since = now if self.delivered > self._by_master else inf
        self._plan(now)

    def deliver(self, delivered: int, now: float) -> None:
        """The consumer has the outputs of this node below a time, and all is worked off below."""
        if delivered <= self.delivered:
            return
        self.delivered = delivered
        if self._since == inf and delivered > self._by_master:
            self._since = now
        if self.tell_by == inf:
            self._plan(now)

    def hear(self, node: str, delivered: int) -> None:
        """Another node tells how far its outputs are delivered. Raises MalformedMessage."""
        if node not in self._of_others:
            raise MalformedMessage(f"{node!r} is no other node")
        self._of_others[node] = max(self._of_others[node], delivered)

    def silent(self, now: float, after: float = SILENT_AFTER_S) -> bool:
        """Whether the master has been silent for so long although there is news."""
        return now - self._since >= after

    def tell(self) -> int:
        """Returns what to tell now."""
        self.tell_by = inf
        self._told = self.delivered
        return self._told

    def to_settle(self, now: float) -> int:
        """The time up to which to settle now without the master; 0: nothing."""
        if not self.silent(now, SETTLE_AFTER_S):
            return 0
        least = min((self.delivered, *self._of_others.values()))
        if least <= max(self.settled, self._by_master):
            return 0
        self.settled = least
        return least

    def _plan(self, now: float) -> None:
        news = self.delivered > self._told and self._since < inf
        self.tell_by = max(now + TELL_EVERY_S, self._since + SILENT_AFTER_S) if news else inf
