"""Snapshots of a run: when one is due, which members have to answer, and what a commit stores.

Inputs: the time, the delivered frontier, `Prepared` and `PrepareFailed`. Outputs: `Prepare` (nodes)
or `SendMarker` (fronts), the record whose write is the commit, and then `Committed` (all).
Invariant: at most one snapshot is in progress, and it is committed only after every part of it is
durable.

See the paper "Delivery, consistency, and determinism", section V-A1. If `Policy.cuts_at_frontier`,
the time of a snapshot is the *delivered* frontier. After a recovery, fronts replay all elements
from that time on, so each output that the consumer lacks is made again. Otherwise markers cut a
snapshot, and its time is 0.

A master that takes over (`Takeover`) lacks the answers that the previous one collected. So it does
not commit the snapshot in progress: it waits until all nodes have written or failed to write their
parts, and then begins another.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct, field

from driftline.coordinator.registry import ClusterState, SnapshotRecord
from driftline.engine.events import event_fields, log
from driftline.engine.labels import INFINITY
from driftline.engine.meters import Histogram
from driftline.engine.policy import Policy
from driftline.engine.texts import format_time
from driftline.engine.wire.messages import (
    Committed,
    Outgoing,
    Prepare,
    Prepared,
    PrepareFailed,
    SendMarker,
)

EARLY_INTERVAL_S = 0.5
"""Minimum seconds between the starts of two snapshots that are requested early. Also the pause
after a failed snapshot: the cause of the failure may be a slow or full disk."""

ADVICE = (
    "Restore the state directory from a copy of the same moment, or start over: remove the state "
    "directory and the outputs"
)
"""What to do if no snapshot can be loaded."""


class PendingSnapshot(Struct):
    """A snapshot as of `time`; `waiting`: the members that have not answered."""

    number: int
    time: int
    waiting: set[str]
    failed: bool = False
    """Whether the snapshot cannot be committed, because a member could not write its part, or
    because an earlier master began the snapshot."""
    positions: dict[str, int] = field(default_factory=dict)
    """Front -> the time at which it would resume; node -> its newest production."""
    event_times: tuple[tuple[int, int], ...] = ()
    """Event times of the sources as of `time` (see `Prepared`); all nodes report the same."""
    late: int = 0
    """Sum of the `late` that nodes reported."""

    def record(
        self, fronts: Sequence[str], nodes: Sequence[str], incarnation: int
    ) -> SnapshotRecord:
        """Return the record that commits the snapshot.

        `incarnation`: the one in which it was taken; `nodes`: the nodes whose newest production is
        recorded. A front without an answer resumes at the snapshot's time: the master asks fronts
        only if markers cut the snapshot.
        """
        offsets = tuple(self.positions.get(front, self.time) for front in fronts)
        parts = tuple(self.positions[node] for node in nodes)
        fields = offsets, incarnation, parts, self.event_times, self.late
        return SnapshotRecord(self.number, self.time, *fields)


class Snapshots:
    """Snapshots of one coordinator. Methods return the messages to send, as (receiver, message)."""

    def __init__(
        self,
        nodes: Sequence[str],
        fronts: Sequence[str],
        policy: Policy,
        interval: float,
    ) -> None:
        """`interval`: seconds between snapshots."""
        self._nodes, self._fronts = nodes, fronts
        self._policy = policy
        self._interval = interval
        self.committed = 0
        """Number of snapshots that this master committed."""
        self.durations = Histogram()
        """For each snapshot that this master committed: seconds from its start to its commit."""
        self.failures = 0
        """Number of parts that could not be written."""
        self.number = 0
        """Number of the newest snapshot that was begun, committed or not."""
        self.committed_at: float | None = None
        """When this master last committed a snapshot; None: never."""
        self.pending: PendingSnapshot | None = None
        """The snapshot in progress; None if there is none."""
        self._time = 0
        """Time of the newest committed snapshot."""
        self._next_at = 0.0
        """When the next snapshot is due (seconds, monotonic)."""
        self._started_at = 0.0
        """When the last snapshot was begun, or was due but skipped since nothing was new."""

    def begin_from(self, start: SnapshotRecord, now: float) -> None:
        """Begin an incarnation from a snapshot; `now`: seconds, monotonic."""
        self.pending = None
        self.number, self._time = start.number, start.time
        self._next_at = now + self._interval

    def give_up(self, number: int, waiting: set[str]) -> None:
        """Abandon an earlier master's snapshots up to `number`.

        `waiting`: the nodes that are still writing the last one; no snapshot begins before they
        have answered.
        """
        self.number = max(self.number, number)
        if waiting:
            self.pending = PendingSnapshot(number, 0, waiting, failed=True)

    def request_early(self) -> None:
        """Make the next snapshot due at the latest EARLY_INTERVAL_S after the last one began."""
        self._next_at = min(self._next_at, self._started_at + EARLY_INTERVAL_S)

    def make_due(self, now: float) -> None:
        """Make the next snapshot due now."""
        self._next_at = now

    @property
    def due_at(self) -> float | None:
        """When to call `consider`; None while no snapshot can begin."""
        can_begin = self._policy.has_snapshots and self.pending is None
        return self._next_at if can_begin else None

    def pending_s(self, now: float) -> float:
        """Return the age of the snapshot in progress, in seconds; 0 without one."""
        return max(0.0, now - self._started_at) if self.pending is not None else 0.0

    @property
    def waits_for(self) -> str:
        """The snapshot in progress and its missing answers, as a suffix of messages; or ""."""
        if self.pending is None or not self.pending.waiting:
            return ""
        members = ", ".join(sorted(self.pending.waiting))
        return f"; snapshot {self.pending.number} waits for {members}"

    def consider(self, delivered: int, now: float) -> Outgoing:
        """Begin a snapshot if one is due.

        It is as of `delivered`; skip it if the newest committed snapshot is as of this time or
        later. Under policies with markers, ask the fronts for markers instead.
        """
        if self.due_at is None or now < self.due_at:
            return []
        self._next_at = now + self._interval
        by_time = self._policy.cuts_at_frontier
        self._started_at = now
        time = delivered if by_time else 0
        if by_time and (time <= self._time or time >= INFINITY):
            return []
        if by_time:
            return self.begin(time, now)
        self.number += 1
        self.pending = PendingSnapshot(self.number, time, set())
        self.pending.waiting.update(self._nodes, self._fronts)
        return [(front, SendMarker(self.number)) for front in self._fronts]

    def begin(self, time: int, now: float) -> Outgoing:
        """Begin a snapshot as of a time, which is the delivered frontier."""
        self._started_at = now
        self.number += 1
        self.pending = PendingSnapshot(self.number, time, {*self._nodes})
        return [(node, Prepare(self.number, time)) for node in self._nodes]

    def prepared(self, sender: str, message: Prepared) -> None:
        """Note that a part of a snapshot is durable."""
        snapshot = self.pending
        if snapshot is not None and message.number == snapshot.number:
            snapshot.positions[sender] = message.offset
            snapshot.event_times = message.event_times or snapshot.event_times
            snapshot.late += message.late if sender in snapshot.waiting else 0
            snapshot.waiting.discard(sender)

    def prepare_failed(self, sender: str, message: PrepareFailed) -> None:
        """Note that a node could not write its part: abandon this snapshot; a later one follows."""
        snapshot = self.pending
        if snapshot is not None and message.number == snapshot.number:
            snapshot.failed = True
            self.failures += 1
            number, reason = message.number, message.reason  # the node also logs the cause
            fields = event_fields("snapshot-failed", snapshot=number, node=sender, reason=reason)
            log.debug("snapshot %d has failed at %s: %s", number, sender, reason, extra=fields)
            snapshot.waiting.discard(sender)

    def record_if_complete(self, incarnation: int, now: float) -> SnapshotRecord | None:
        """Return the record that commits the snapshot; None if an answer is missing.

        If a failed snapshot has all answers, forget the snapshot and return None.
        """
        snapshot = self.pending
        if snapshot is None or snapshot.waiting:
            return None
        if snapshot.failed:
            self.pending = None
            self._next_at = max(self._next_at, now + EARLY_INTERVAL_S)
            return None
        nodes = self._nodes if self._policy.recovers_locally else ()
        return snapshot.record(self._fronts, nodes, incarnation)

    def on_committed(self, state: ClusterState, now: float) -> Outgoing:
        """Note that the registry has the pending snapshot. Return the messages that announce it.

        `state`: the contents of the registry.
        """
        self.pending = None
        self.committed += 1
        self.committed_at = now
        self.durations.add(max(0.0, now - self._started_at))
        number, time = state.snapshots[0].number, state.snapshots[0].time
        fields = event_fields("snapshot", snapshot=number, time=time)
        log.debug("%s is committed", snapshot_name(number, time), extra=fields)
        return self.announce(state)

    def announce(self, state: ClusterState) -> Outgoing:
        """Return the messages that announce the newest committed snapshot to all members.

        They may be sent again.
        """
        newest, oldest = state.snapshots[0], state.snapshots[-1]
        self._time = newest.time
        previous = oldest.number if oldest.number < newest.number else 0
        messages: Outgoing = [
            (node, Committed(newest.number, previous, 0, 0)) for node in self._nodes
        ]
        offsets = zip(oldest.offsets, newest.offsets, strict=True)
        for front, (trim, offset) in zip(self._fronts, offsets, strict=True):
            messages.append((front, Committed(newest.number, previous, trim, offset)))
        return messages


def snapshot_name(number: int, time: int) -> str:
    """Return a snapshot's name for messages. If markers cut it (time 0), omit the time."""
    return f"snapshot {number}" + (f" (the state before {format_time(time)})" if time else "")
