"""The process of the journal: ``python -m driftline.serve.hosting.journal_process CONFIG``.

CONFIG is the JSON form of `ServiceConfig`. The process runs until its parent ends or kills it.
"""

from __future__ import annotations

import sys
from pathlib import Path
from time import monotonic

from driftline.deploy.roles.consumer import ConsumerServer
from driftline.deploy.runtime.loop.cpu_affinity import CpuAffinity
from driftline.deploy.runtime.loop.runtime import Runtime
from driftline.engine.errors import MalformedMessage, Unavailable
from driftline.engine.events import FailureLog
from driftline.engine.flow.loading import load_flow
from driftline.engine.labels import INFINITY
from driftline.engine.storage.ownership import DirectoryOwner
from driftline.engine.wire.kinds import CONSUMER
from driftline.engine.wire.messages import Bundle, BundleStored, Delayed
from driftline.serve.hosting.config import JOURNAL, ServiceConfig
from driftline.serve.hosting.feeds import Feeds
from driftline.serve.hosting.ipc import IpcRole
from driftline.serve.hosting.processes import heartbeat_context, run_process
from driftline.serve.journal import Journal, Span

DROP_EVERY_S = 60.0
"""Interval in seconds at which segments beyond the size limit are removed."""

MESSAGES_PER_TURN_MAX = 64
"""Largest number of followers' messages that a call of `FeedServer.handle_input` handles."""

SYNC_EVERY_S = 1.0
"""Longest time in seconds until bundles without outputs are durable."""


class JournalServer(ConsumerServer):
    """The consumer server of one journal, with group commit: one sync covers all bundles of a turn.

    Input: `FetchLast` and `Bundle` of barriers. Output: the answers of a consumer server. The
    journal also passes spans to its followers, before the sync. Invariant: a bundle that was
    answered with `BundleStored` is durable. A bundle without outputs only reports progress and gets
    no `BundleStored`, so its sync may wait up to `SYNC_EVERY_S`.
    """

    def __init__(self, journal: Journal) -> None:
        super().__init__(lambda barrier: journal)
        self.journal = journal
        self.durable_time = 0
        """All outputs below this time are durable."""
        self._unanswered: list[tuple[str, Bundle]] = []
        """(sender, bundle) of the bundles with outputs that were written since the last sync."""
        self._sync_at = 0.0
        """When the next sync is due, even without new outputs."""

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
                self._record_problem(bundle, str(error))
                self.send(sender, Delayed(bundle.barrier, bundle.incarnation, str(error)))
            return
        self.durable_time = self.journal.time
        for sender, bundle in unanswered:
            if bundle.t_last <= durable.get(bundle.barrier, -1):
                stored = BundleStored(bundle.barrier, bundle.incarnation, bundle.t_last)
                self.send(sender, stored)


class FeedServer(IpcRole):
    """Server of the journal's followers; sends spans as soon as the journal forwards them."""

    def __init__(self, server: JournalServer, config: ServiceConfig) -> None:
        self._feeds = Feeds(server.journal.read_by_bundle)
        super().__init__("feeds", self._feeds.remove_follower)
        self._server = server
        self._config = config
        self._durable_time = -1
        self._drop_at = 0.0
        self._drop_failures = FailureLog("journal-not-dropped")
        self.ipc.listen(config.feeds_socket)
        server.journal.followers.append(self.forward)

    @property
    def follower_count(self) -> int:
        """The number of followers."""
        return self._feeds.follower_count

    def forward(self, span: Span) -> None:
        """Send a span to the live feeds. The journal calls this before it stores the span."""
        self._feeds.forward(span)
        self._send()

    def handle_input(self) -> None:
        for _ in range(MESSAGES_PER_TURN_MAX):
            if (received := self.ipc.next()) is None:
                break
            try:
                self._feeds.take(*received, monotonic())
            except MalformedMessage:
                self.malformed += 1

    def work(self) -> bool:
        if self._server.durable_time != self._durable_time:
            self._durable_time = self._server.durable_time
            self._feeds.set_durable_time(self._durable_time)
        more = self._feeds.turn(self.now)
        self._send()
        if self.now >= self._drop_at:
            self._drop_at = self.now + DROP_EVERY_S
            self._drop_segments()
        return more

    def close(self) -> None:
        """Close all connections."""
        self.ipc.close()

    def _send(self) -> None:
        for route, data in self._feeds.outbox:
            self.ipc.send(route, data)
        self._feeds.outbox.clear()

    def _drop_segments(self) -> None:
        """Remove segments beyond the size limit, except those that a view needs for a restart."""
        retained_bytes, restart_times = self._config.retained_bytes, self._feeds.restart_times
        if retained_bytes is None:
            return
        shards = self._config.shard_names
        needed_from = min((restart_times.get(name, 0) for name in shards), default=INFINITY)
        try:
            self._server.journal.drop(retained_bytes, needed_from)
        except Unavailable as error:
            text = f"cannot remove old segments of the journal: {error}; retrying"
            self._drop_failures.record_failure(self.now, text)
        else:
            self._drop_failures.record_success(self.now, "old segments can be removed again")


def run_journal(config: ServiceConfig) -> None:
    """Run the journal until the process is killed."""
    process = config.process
    flow = load_flow(process.flow)
    owner = DirectoryOwner(process.lineage, JOURNAL, process.session)
    journal = Journal(Path(config.path(JOURNAL)), flow, process.identity, owner)
    server = JournalServer(journal)
    transport = config.network.transport()
    runtime = Runtime(transport=transport, affinity=CpuAffinity(process.cores))
    runtime.add(server, config.network.inbox(CONSUMER, process.sockets))
    feeds = FeedServer(server, config)
    runtime.add_with_input(feeds, feeds.ipc.fileno(), feeds.handle_input)
    with heartbeat_context(config, runtime):
        runtime.run(lambda: False)


if __name__ == "__main__":
    run_process(sys.argv[1], run_journal)
