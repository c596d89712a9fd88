"""The snapshots of a run: when one is due, who has not answered, and what the commit says.

Takes: the time, the delivered frontier, `Prepared` and `PrepareFailed`. Gives: `Prepare` (nodes) or
`BeginEpoch` (fronts), the record whose writing is the commit, and then `Committed` (all).
Invariant: there is never a second snapshot under way, and none is committed before every part of it
is durable.

Delivery, consistency, and determinism, section V-A1; barriers take no part. The time of a snapshot
is the *delivered* frontier: elements above it are replayed, so a snapshot can never make the run
skip an output that the consumer lacks.

A master that takes over (`Takeover`) does not know what the one before it had collected. So it
gives up the snapshot that was under way, as soon as all nodes have answered it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from driftline.coordinator.registry import ClusterState, SnapshotRecord
from driftline.engine.events import about, log
from driftline.engine.labels import INFINITY
from driftline.engine.meters import Histogram
from driftline.engine.policy import Policy
from driftline.engine.texts import time_in_words
from driftline.engine.wire.messages import (
    BeginEpoch,
    Committed,
    Message,
    Prepare,
    Prepared,
    PrepareFailed,
)

HURRIED_EVERY_S = 0.5
"""Seconds from one snapshot to the next that members ask for: it may be the disk that is slow."""

Told = list[tuple[str, Message]]

ADVICE = (
    "Restore the state directory from a copy of the same moment, or begin anew: remove the state "
    "directory and the outputs"
)
"""What to do if none can be loaded."""


@dataclass(slots=True)
class PendingSnapshot:
    """A snapshot as of `time`; `waiting`: the members that have not answered."""

    number: int
    time: int
    waiting: set[str]
    failed: bool = False
    """Whether a member could not write its part, or an earlier master has begun it."""
    answers: dict[str, int] = field(default_factory=dict)
    """Member -> of a front, the time that it would go on from; of a node, its newest production."""

    def record(self, fronts: Sequence[str], nodes: Sequence[str], taken: int) -> SnapshotRecord:
        """The record that commits it. `taken`: the incarnation; `nodes`: those with productions.

        A front that has not been asked goes on from the snapshot's time.
        """
        offsets = tuple(self.answers.get(front, self.time) for front in fronts)
        parts = tuple(self.answers[node] for node in nodes)
        return SnapshotRecord(self.number, self.time, offsets, taken, parts)


class Snapshots:
    """The snapshots of one coordinator. Messages are returned as (receiver, message)."""

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
        """How many this master has committed."""
        self.durations = Histogram()
        """Of each of them: seconds since it was begun."""
        self.failures = 0
        """Parts that could not be written."""
        self.number = 0
        """Of the newest one that was begun."""
        self.committed_at: float | None = None
        """When this master has committed the newest one; None: it has committed none."""
        self.pending: PendingSnapshot | None = None
        self._time = 0
        """Of the newest one that is committed."""
        self._next_at = 0.0
        self._begun_at = 0.0

    def begin_from(self, start: SnapshotRecord, now: float) -> None:
        """An incarnation begins from a snapshot; `now`: seconds, monotonic."""
        self.pending = None
        self.number, self._time = start.number, start.time
        self._next_at = now + self._interval

    def give_up(self, number: int, waiting: set[str]) -> None:
        """An earlier master has begun snapshots up to `number`; `waiting`: nodes at work on one."""
        self.number = max(self.number, number)
        if waiting:
            self.pending = PendingSnapshot(number, 0, waiting, failed=True)

    def hurry(self) -> None:
        """A node or front asks for a snapshot before it is due, as much waits for it."""
        self._next_at = min(self._next_at, self._begun_at + HURRIED_EVERY_S)

    def make_due(self, now: float) -> None:
        """The next snapshot is due now."""
        self._next_at = now

    @property
    def due_at(self) -> float | None:
        """When `consider` wants to be called; None while no snapshot can begin."""
        can_begin = self._policy.has_snapshots and self.pending is None
        return self._next_at if can_begin else None

    def pending_s(self, now: float) -> float:
        """For how long the snapshot under way has been so; 0: there is none."""
        return max(0.0, now - self._begun_at) if self.pending is not None else 0.0

    @property
    def waits_for(self) -> str:
        """The snapshot under way, and who has not answered, to follow other words; "" if none."""
        if self.pending is None or not self.pending.waiting:
            return ""
        members = ", ".join(sorted(self.pending.waiting))
        return f"; snapshot {self.pending.number} waits for {members}"

    def consider(self, delivered: int, now: float) -> Told:
        """Begin a snapshot, as of the delivered frontier, or the end, if it is due and new."""
        if self.due_at is None or now < self.due_at:
            return []
        self._next_at = now + self._interval
        by_time = self._policy.cuts_by_time
        self._begun_at = now
        time = delivered if by_time else 0
        if by_time and (time <= self._time or time >= INFINITY):
            return []
        if by_time:
            return self.begin(time, now)
        self.number += 1
        self.pending = PendingSnapshot(self.number, time, set())
        self.pending.waiting.update(self._nodes, self._fronts)
        return [(front, BeginEpoch(self.number)) for front in self._fronts]

    def begin(self, time: int, now: float) -> Told:
        """Begin a snapshot as of a time, which is the delivered frontier."""
        self._begun_at = now
        self.number += 1
        self.pending = PendingSnapshot(self.number, time, {*self._nodes})
        return [(node, Prepare(self.number, time)) for node in self._nodes]

    def prepared(self, sender: str, message: Prepared) -> None:
        """A part of a snapshot is durable."""
        snapshot = self.pending
        if snapshot is not None and message.number == snapshot.number:
            snapshot.answers[sender] = message.offset
            snapshot.waiting.discard(sender)

    def prepare_failed(self, sender: str, message: PrepareFailed) -> None:
        """A node could not write its part: give this snapshot up; a later one is tried."""
        snapshot = self.pending
        if snapshot is not None and message.number == snapshot.number:
            snapshot.failed = True
            self.failures += 1
            number, reason = message.number, message.reason  # the node's process logs the disk
            fields = about("snapshot-failed", snapshot=number, node=sender, reason=reason)
            log.debug("snapshot %d has failed at %s: %s", number, sender, reason, extra=fields)
            snapshot.waiting.discard(sender)

    def to_commit(self, incarnation: int, now: float) -> SnapshotRecord | None:
        """The record to be written once all have answered, not before; None if there is none."""
        snapshot = self.pending
        if snapshot is None or snapshot.waiting:
            return None
        if snapshot.failed:
            self.pending = None
            self._next_at = max(self._next_at, now + HURRIED_EVERY_S)
            return None
        nodes = self._nodes if self._policy.goes_on else ()
        return snapshot.record(self._fronts, nodes, incarnation)

    def commit(self, state: ClusterState, now: float) -> Told:
        """The registry has the snapshot under way; `state`: what it holds."""
        self.pending = None
        self.committed += 1
        self.committed_at = now
        self.durations.add(max(0.0, now - self._begun_at))
        number, time = state.snapshots[0].number, state.snapshots[0].time
        fields = about("snapshot", snapshot=number, time=time)
        log.debug("%s is committed", named(number, time), extra=fields)
        return self.tell(state)

    def tell(self, state: ClusterState) -> Told:
        """Tell all members of the newest snapshot that is committed; may be repeated."""
        newest, oldest = state.snapshots[0], state.snapshots[-1]
        self._time = newest.time
        before = oldest.number if oldest.number < newest.number else 0
        told: Told = [(node, Committed(newest.number, before, 0, 0)) for node in self._nodes]
        offsets = zip(oldest.offsets, newest.offsets, strict=True)
        for front, (trim, offset) in zip(self._fronts, offsets, strict=True):
            told.append((front, Committed(newest.number, before, trim, offset)))
        return told


def named(number: int, time: int) -> str:
    """A snapshot, for people; without a time if it is a cut by epochs."""
    return f"snapshot {number}" + (f" (the state before {time_in_words(time)})" if time else "")
