"""The journal's party: stores the bundles of all barriers in groups, and forwards them at once.

Takes `FetchLast` and `Bundle` (barriers). Gives what a consumer server gives, and spans to the
journal's followers. Invariant: a bundle that was answered with `BundleStored` is durable. All
bundles of a turn are made durable at once; empty ones, which need no answer, by and by.
"""

from __future__ import annotations

from driftline.deploy.parties.consumer import ConsumerServer
from driftline.engine.errors import Unavailable
from driftline.engine.wire.messages import Bundle, BundleStored, Delayed
from driftline.serve.journal import Journal

SYNC_EVERY_S = 1.0
"""How long empty bundles wait at most until they are durable."""


class JournalServer(ConsumerServer):
    """The consumer server of one journal."""

    def __init__(self, journal: Journal) -> None:
        super().__init__(lambda barrier: journal)
        self.journal = journal
        self.stored = 0
        """All outputs below this time are durable."""
        self._unanswered: list[tuple[str, Bundle]] = []
        self._sync_at = 0.0

    def turn(self) -> bool:
        more = super().turn()
        if self._unanswered or self.now >= self._sync_at:
            self._sync()
        return more

    def tick(self, now: float) -> float:
        return min(super().tick(now), max(now + 0.01, self._sync_at))

    def _store(self, sender: str, bundle: Bundle) -> None:
        self.journal.take(bundle)
        if bundle.blobs:
            self._unanswered.append((sender, bundle))

    def _sync(self) -> None:
        self._sync_at = self.now + SYNC_EVERY_S
        unanswered, self._unanswered = self._unanswered, []
        try:
            durable = self.journal.sync()
        except Unavailable as error:
            for sender, bundle in unanswered:
                self._tell_trouble(bundle, str(error))
                self.send(sender, Delayed(bundle.barrier, bundle.incarnation, str(error)))
            return
        self.stored = self.journal.time
        for sender, bundle in unanswered:
            if bundle.t_last <= durable.get(bundle.barrier, -1):
                stored = BundleStored(bundle.barrier, bundle.incarnation, bundle.t_last)
                self.send(sender, stored)
