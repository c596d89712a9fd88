"""Protocol between a barrier and its consumer, and the delivered frontier without a master.

`Delivery` takes `LastBundle` and `BundleStored` (consumer), and the time. It returns messages to
send: bundles, each again if the consumer did not receive it, and questions (`FetchLast`). The first
question is due at the beginning of an incarnation, further ones while an answer is overdue. For a
consumer that merges several barriers (`Barrier.reports_progress`), it also returns empty bundles,
which need no answer, and a question whenever it has returned no other bundle for
`DELIVERY_RETRY_S`.

Another process may replace a consumer at any time, and messages of the earlier process may arrive
late. Therefore each question carries the number of bundles that were sent, plus the number of
`BundleStored` that arrived. An answer with another number is ignored. Invariant: between a question
and its accepted answer, the node sends no bundle and handles no `BundleStored`.

Under policies with label order, `DeliveryGossip` replaces the master's `Progress` while the master
is silent: each node sends the fronts and the other nodes its own delivered frontier, and the
minimum is what the master would send. The data path thus continues without a master. After
`SETTLE_AFTER_S` a node also settles its states up to this minimum; otherwise the undo records of
all changes would accumulate. The node then refuses snapshots at earlier times, which the master may
have requested.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf

from driftline.barrier.barrier import Barrier
from driftline.engine.errors import MalformedMessage
from driftline.engine.wire.messages import Bundle, BundleStored, FetchLast, LastBundle

DELIVERY_RETRY_S = 1.0
"""Seconds from a bundle or a question until the node checks whether a question is due."""

SILENT_AFTER_S = 0.02
"""A node gossips if its frontier is ahead of the master's and no `Progress` arrives for this long
(seconds). At high load the master sends `Progress` every millisecond, and the windows of fronts
fill within tens of milliseconds."""

GOSSIP_EVERY_S = 0.005
"""Minimum interval in seconds between two rounds of `Delivered` messages of a node."""

SETTLE_AFTER_S = 2.0
"""A node settles without the master after this many seconds without `Progress`. A master repeats
`Progress` every second."""


class Delivery:
    """Protocol of one barrier with its consumer in one incarnation.

    `address`: where the consumer sends its answers.
    """

    def __init__(self, barrier: Barrier, incarnation: int, address: str) -> None:
        self.barrier = barrier
        self.ask_at = 0.0
        """When to check next whether a question is due (seconds, monotonic)."""
        self._incarnation = incarnation
        self._address = address
        self.sent_at = 0.0
        """When the newest bundle was first sent (seconds, monotonic)."""
        self.unanswered = 0
        """Questions since the last answer."""
        self._exchanged = 0
        """Number of bundles sent (a resent one counts again) plus number of `BundleStored`."""

    def question(self, now: float) -> FetchLast | None:
        """Return the question to send now; None if none is due."""
        if now < self.ask_at:
            return None
        self.ask_at = now + DELIVERY_RETRY_S
        barrier = self.barrier
        if barrier.connected and barrier.outstanding is None and not barrier.reports_progress:
            self.unanswered = 0
            return None
        self.unanswered += 1
        return FetchLast(
            barrier.name, self._incarnation, barrier.groups, self._address, self._exchanged
        )

    def bundle(self, now: float) -> Bundle | None:
        """Return the next bundle to send; None if no output may leave now."""
        bundle = self.barrier.take_bundle(self._incarnation)
        if bundle is not None:
            self._exchanged += 1
            self.sent_at = now
            self.ask_at = now + DELIVERY_RETRY_S
        return bundle

    def take_empty_bundle(self) -> Bundle | None:
        """Return an empty bundle to send; see `Barrier.take_progress_report`."""
        return self.barrier.take_progress_report(self._incarnation)

    def stored(self, message: BundleStored) -> None:
        """Record that the consumer has stored a bundle."""
        if message.incarnation == self._incarnation:
            self.unanswered = 0
            self._exchanged += 1
            self.barrier.mark_stored(message.t_last)

    def on_last_bundle(self, message: LastBundle) -> Bundle | None:
        """Handle an answer. Return the bundle to resend if the consumer does not have it.

        Raises StateMismatch if the consumer's outputs do not fit this node's state.
        """
        self.unanswered = 0
        if (message.incarnation, message.number) != (self._incarnation, self._exchanged):
            return None
        outstanding = self.barrier.outstanding
        self.barrier.handle_last_bundle(message.t_last, message.checksum, message.blobs)
        if outstanding is None or self.barrier.outstanding is not outstanding:
            return None
        self._exchanged += 1
        return outstanding


class DeliveryGossip:
    """Delivered frontiers that one node sends and receives in an incarnation from time `start`.

    Takes: `Progress` (master), `Delivered` (`others`: the other nodes), this node's own delivered
    frontier, the current time. Returns: when to send which frontier, and up to which time to
    settle. Invariant: consumers have all outputs of all nodes below the settled time. While
    `Progress` arrives at shorter intervals than `SILENT_AFTER_S`, the node sends no gossip.
    """

    def __init__(self, others: Iterable[str], start: int) -> None:
        self._delivered_by_others = dict.fromkeys(others, start)
        self._master_delivered = start
        self._ahead_since = inf
        """When this node's frontier got ahead of the master's, or when `Progress` last arrived if
        later; inf if the node is not ahead (seconds, monotonic)."""
        self._announced = start
        """The frontier that was sent last."""
        self.delivered = start
        """The consumer has all outputs of this node below this time."""
        self.settled = 0
        """Elements below this time were settled without the master: no snapshot can be earlier."""
        self.send_by = inf
        """When to send `delivered` (seconds, monotonic); inf if it is not due."""

    def progress(self, delivered: int, now: float) -> None:
        """Record the master's delivered frontier."""
        self._master_delivered = max(self._master_delivered, delivered)
        self._ahead_since = now if self.delivered > self._master_delivered else inf
        self._schedule(now)

    def deliver(self, delivered: int, now: float) -> None:
        """Record this node's delivered frontier.

        Precondition: all nodes have processed all elements below it.
        """
        if delivered <= self.delivered:
            return
        self.delivered = delivered
        if self._ahead_since == inf and delivered > self._master_delivered:
            self._ahead_since = now
        if self.send_by == inf:
            self._schedule(now)

    def on_delivered(self, node: str, delivered: int) -> None:
        """Record another node's delivered frontier. Raises MalformedMessage."""
        if node not in self._delivered_by_others:
            raise MalformedMessage(f"{node!r} is not another node")
        self._delivered_by_others[node] = max(self._delivered_by_others[node], delivered)

    def is_master_silent(self, now: float, after: float = SILENT_AFTER_S) -> bool:
        """Return whether, for `after` seconds, this node was ahead and no `Progress` arrived."""
        return now - self._ahead_since >= after

    def take_frontier(self) -> int:
        """Return the frontier to send now, and cancel `send_by`."""
        self.send_by = inf
        self._announced = self.delivered
        return self._announced

    def take_settle_time(self, now: float) -> int:
        """Return the time below which to settle now without the master; 0: settle nothing.

        Record a returned time as settled.
        """
        if not self.is_master_silent(now, SETTLE_AFTER_S):
            return 0
        frontier = min((self.delivered, *self._delivered_by_others.values()))
        if frontier <= max(self.settled, self._master_delivered):
            return 0
        self.settled = frontier
        return frontier

    def _schedule(self, now: float) -> None:
        self.send_by = inf
        if self.delivered > self._announced and self._ahead_since < inf:
            self.send_by = max(now + GOSSIP_EVERY_S, self._ahead_since + SILENT_AFTER_S)
