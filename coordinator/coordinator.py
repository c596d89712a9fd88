"""The coordinator: who takes part, when snapshots are taken, and how a failure is recovered from.

Takes `Hello` (everybody), `Unloadable`, `Prepared`, `PrepareFailed`, `Lost`, `Failed`, the
time, and the progress of all. Gives `Recover`, `Prepare` (nodes), `Start`, `BeginEpoch`
(fronts), `Committed`, `Stop`, and writes to the registry.

Recovery (Delivery, consistency, and determinism, section V-B): a new incarnation is written to the
registry; nodes load the last committed snapshot and their barriers fetch the consumer's last
bundle; when all are ready, fronts replay from the snapshot's time. The start of a run is the same
with an empty snapshot.

Snapshot (section V-A1): when all have prepared, writing its record is the commit. Barriers take
no part. The time of a snapshot is the *delivered* frontier: what is above it is replayed, so an
output that a consumer does not have yet can never be skipped by a snapshot.

Invariants: a decision is sent only once it is in the registry; a snapshot is committed only if
every part of it is durable; incarnations only grow.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from enum import Enum

from coordinator.registry import ClusterState, SnapshotRecord, WriteState
from engine.labels import INFINITY
from engine.messages import (
    BeginEpoch,
    Committed,
    Failed,
    Hello,
    Lost,
    Message,
    Prepare,
    Prepared,
    PrepareFailed,
    Recover,
    Start,
    Stop,
    Unloadable,
)
from engine.party import Job
from engine.policy import Output, Policy, SnapshotCut

log = logging.getLogger("driftline")

MISSING_AFTER_S = 5.0
"""Silence after which a node or front counts as dead."""

UNPREPARED_AFTER_S = 30.0
"""How long a snapshot may take; a marker that is lost is noticed by nothing else."""


ADVICE = (
    "Restore the state directory from a copy of the same moment, or begin anew: without the state "
    "directory, and without the outputs"
)


class Phase(Enum):
    """Where the run stands."""

    GATHERING = "waiting for nodes and fronts"
    DECIDING = "writing a new incarnation"
    LOADING = "nodes load a snapshot"
    RUNNING = "running"
    STOPPED = "stopped"
    BROKEN = "a new master is needed"


@dataclass(slots=True)
class _Member:
    process: str
    address: str
    seen: float


@dataclass(slots=True)
class _Snapshot:
    """One that is being taken."""

    number: int
    time: int
    waiting: set[str]
    offsets: dict[int, int] = field(default_factory=dict)
    parts: dict[int, int] = field(default_factory=dict)
    failed: bool = False
    since: float = 0.0


class Coordinator:
    """Decides; `out` and `jobs` hold what it wants to be sent and written."""

    def __init__(
        self, nodes: int, fronts: int, policy: Policy, state: ClusterState, interval: float
    ) -> None:
        self.nodes = [f"node-{i}" for i in range(nodes)]
        self.fronts = [f"front-{i}" for i in range(fronts)]
        self.policy = policy
        self.state = state
        self.interval = interval
        self.phase = Phase.GATHERING
        self.out: list[tuple[str, Message]] = []
        self.jobs: list[Job] = []
        self.error = ""
        """Why the run was stopped, if it did not do what was asked."""
        self.recoveries = 0
        self.snapshots = 0
        self._members: dict[str, _Member] = {}
        self._ready: set[str] = set()
        self._snapshot: _Snapshot | None = None
        self._number = 0
        self._next_snapshot = 0.0
        self._last_time = 0
        self._writing: WriteState | None = None
        self._write_again = False
        self._now = 0.0

    @property
    def start(self) -> SnapshotRecord:
        """The snapshot that a recovery begins from; number 0 is the empty one."""
        if self.state.snapshots:
            return self.state.snapshots[0]
        return SnapshotRecord(0, 0, (0,) * len(self.fronts))

    # Members and failures.

    def hello(self, name: str, message: Hello) -> None:
        """A node or front is there, perhaps as a new process."""
        if name not in self.nodes and name not in self.fronts:
            return
        known = self._members.get(name)
        self._members[name] = _Member(message.process, message.address, self._now)
        if self.phase in (Phase.STOPPED, Phase.BROKEN):
            return
        if known is not None and known.process != message.process:
            self._recover(f"{name} has been restarted")
        elif self.phase is Phase.GATHERING:
            self._recover("")
        elif message.incarnation < self.state.incarnation:
            self._tell_where_we_are(name)
        elif self.phase is Phase.LOADING and message.ready and name in self.nodes:
            self._ready.add(name)
            if len(self._ready) == len(self.nodes):
                self._run()

    def lost(self, message: Lost) -> None:
        """Somebody misses something."""
        if message.incarnation == self.state.incarnation and self.phase is Phase.RUNNING:
            self._recover(message.reason)

    def failed(self, message: Failed) -> None:
        """The flow cannot go on."""
        if message.incarnation == self.state.incarnation and self.phase is not Phase.STOPPED:
            self.stop(message.error, message.text)

    def stop(self, error: str = "", text: str = "") -> None:
        """End the run."""
        self.phase = Phase.STOPPED
        self.error = f"{error}: {text}" if error else ""
        self._tell(self.nodes + self.fronts, Stop(error, text))

    def tick(self, now: float) -> None:
        """Notice silence."""
        self._now = now
        silent = [n for n, m in self._members.items() if now - m.seen > MISSING_AFTER_S]
        for name in silent:
            del self._members[name]
        snapshot = self._snapshot
        if snapshot is not None and now - snapshot.since > UNPREPARED_AFTER_S:
            self._recover(f"snapshot {snapshot.number} is not prepared: a marker may be lost")
        if silent and self.phase in (Phase.DECIDING, Phase.LOADING, Phase.RUNNING):
            self._recover(f"{', '.join(silent)} did not answer for {MISSING_AFTER_S:g} s")

    @property
    def deadline(self) -> float:
        """When it wants to be told the time again."""
        if self.phase is not Phase.RUNNING or self.policy.cut is SnapshotCut.NONE:
            return self._now + MISSING_AFTER_S / 4
        return min(self._now + MISSING_AFTER_S / 4, max(self._next_snapshot, self._now + 0.001))

    # Recovery.

    def _recover(self, reason: str) -> None:
        self._snapshot = None
        if reason:
            self.recoveries += 1
            log.warning("recovering: %s", reason)
        if len(self._members) < len(self.nodes) + len(self.fronts):
            self.phase = Phase.GATHERING
            return
        self.phase = Phase.DECIDING
        if self._writing is None:
            self._write(self.state.next(incarnation=self.state.incarnation + 1))
        else:  # every write follows the one before: first it has to be known what came of that
            self._write_again = True

    def _write(self, state: ClusterState) -> None:
        self._writing = WriteState(state)
        self.jobs.append(self._writing)

    def done(self, job: Job, result: object) -> None:
        """A write has been carried out, or failed."""
        if job is not self._writing or self.phase in (Phase.STOPPED, Phase.BROKEN):
            return
        self._writing = None
        if isinstance(result, Exception):
            # Whether it was written is unknown; a new master can tell, by reading.
            log.error("the registry cannot be written: %s", result)
            self.phase = Phase.BROKEN
            return
        assert isinstance(job, WriteState)
        self.state = job.state
        if self._write_again:
            self._write_again = False
            self._recover("")
            return
        if self.phase is Phase.DECIDING:
            self._load()
        elif self.phase is Phase.RUNNING and self._snapshot is not None:
            self._committed()

    def _load(self) -> None:
        self.phase = Phase.LOADING
        self._ready.clear()
        self._number = self.start.number
        self._last_time = self.start.time
        for node in self.nodes:
            self._tell_where_we_are(node)

    def _run(self) -> None:
        self.phase = Phase.RUNNING
        self._next_snapshot = self._now + self.interval
        for front in self.fronts:
            self._tell_where_we_are(front)

    def _tell_where_we_are(self, name: str) -> None:
        """Begin the incarnation at a node or front; again if the first message was lost."""
        incarnation, start = self.state.incarnation, self.start
        addresses = tuple((name, member.address) for name, member in sorted(self._members.items()))
        if name in self.nodes and self.phase in (Phase.LOADING, Phase.RUNNING):
            number = start.number
            if self.policy.goes_on:  # at least what it had when the snapshot was taken
                number = start.parts[self.nodes.index(name)] if start.parts else 0
            recover = Recover(incarnation, number, start.taken, start.time, addresses)
            self._tell([name], recover)
        elif name in self.fronts and self.phase is Phase.RUNNING:
            offset = start.offsets[self.fronts.index(name)] if self.policy.replay else -1
            self._tell([name], Start(incarnation, offset, addresses))

    def unloadable(self, sender: str, message: Unloadable) -> None:
        """A snapshot is damaged: go back to the one before."""
        if message.incarnation != self.state.incarnation or self.phase is not Phase.LOADING:
            return
        reason = f"{sender} cannot load snapshot {message.number}: {message.reason}"
        older = tuple(s for s in self.state.snapshots if s.number < message.number)
        needed = self.policy.output in (Output.COMMIT, Output.DURABLE)  # outputs left because of it
        if needed or not message.number or (self.state.base and not older):
            self.stop("SnapshotDamaged", f"{reason}. {ADVICE}")
            return
        log.warning("%s; the previous snapshot is used", reason)
        self.phase = Phase.DECIDING
        self._write(self.state.next(incarnation=self.state.incarnation + 1, snapshots=older))

    # Snapshots.

    def consider_snapshot(self, delivered: int) -> None:
        """Begin a snapshot if it is time for one and there is something new."""
        if (
            self.policy.cut is SnapshotCut.NONE
            or self.phase is not Phase.RUNNING
            or self._snapshot is not None
            or self._now < self._next_snapshot
        ):
            return
        self._next_snapshot = self._now + self.interval
        cut = self.policy.cut
        by_time = cut in (SnapshotCut.LABEL, SnapshotCut.PRODUCTIONS)
        time = delivered if by_time else 0
        if by_time and (time <= self._last_time or time >= INFINITY):
            return
        self._number += 1
        self._snapshot = snapshot = _Snapshot(self._number, time, set(), since=self._now)
        if by_time:
            snapshot.waiting.update(self.nodes)
            self._tell(self.nodes, Prepare(self._number, time))
        else:
            snapshot.waiting.update(self.nodes, self.fronts)
            self._tell(self.fronts, BeginEpoch(self._number))

    def prepared(self, sender: str, message: Prepared) -> None:
        """A part of the snapshot is durable."""
        snapshot = self._snapshot
        if snapshot is None or message.number != snapshot.number:
            return
        if sender in self.fronts:
            snapshot.offsets[self.fronts.index(sender)] = message.offset
        elif sender in self.nodes:
            snapshot.parts[self.nodes.index(sender)] = message.offset
        self._answered(snapshot, sender)

    def prepare_failed(self, sender: str, message: PrepareFailed) -> None:
        """A part could not be written: this snapshot is given up, a later one is tried."""
        snapshot = self._snapshot
        if snapshot is None or message.number != snapshot.number:
            return
        log.warning("snapshot %d: %s: %s", message.number, sender, message.reason)
        snapshot.failed = True
        self._answered(snapshot, sender)

    def _answered(self, snapshot: _Snapshot, sender: str) -> None:
        """Decide once everybody has answered: two snapshots are never under way together."""
        snapshot.waiting.discard(sender)
        if snapshot.waiting or self._writing is not None:
            return
        if snapshot.failed:
            self._snapshot = None
            return
        offsets = tuple(snapshot.offsets.get(f, snapshot.time) for f in range(len(self.fronts)))
        parts: tuple[int, ...] = ()
        if self.policy.goes_on:
            parts = tuple(snapshot.parts[node] for node in range(len(self.nodes)))
        taken = self.state.incarnation
        record = SnapshotRecord(snapshot.number, snapshot.time, offsets, taken, parts)
        self._write(self.state.next(snapshots=(record, *self.state.snapshots[:1])))

    def _committed(self) -> None:
        assert self._snapshot is not None
        self._last_time = self._snapshot.time
        self.snapshots += 1
        number = self._snapshot.number
        self._snapshot = None
        oldest = self.state.snapshots[-1]
        before = oldest.number if oldest.number < number else 0
        self._tell(self.nodes, Committed(number, before, 0))
        for front, trim in zip(self.fronts, oldest.offsets, strict=True):
            self._tell([front], Committed(number, before, trim))

    def _tell(self, names: list[str], message: Message) -> None:
        self.out += [(name, message) for name in names]
