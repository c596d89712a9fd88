"""The coordinator: who takes part, when snapshots are taken, and how a failure is recovered from.

Takes `Hello`, `Alive`, `Goodbye` (everybody), `Unloadable`, `Prepared`, `PrepareFailed`, `Lost`,
`Failed`, the time, and the progress of all. Gives `Recover`, `Prepare` (nodes), `Start`,
`BeginEpoch` (fronts), `Committed`, `Stop`, and writes to the registry.

Recovery (Delivery, consistency, and determinism, section V-B): a new incarnation is written to the
registry; nodes load the last committed snapshot and their barriers fetch the consumer's last
bundle; when all are ready, fronts replay from the snapshot's time. The start of a run is the same
with an empty snapshot.

Snapshot (section V-A1): when all have prepared, writing its record is the commit. Barriers take
no part. The time of a snapshot is the *delivered* frontier: what is above it is replayed, so an
output that a consumer does not have yet can never be skipped by a snapshot.

End of a run: the outcome is written to the registry. From then on it is a fact that no failure
changes: this master, and any other of the same run, tells every member that says hello, until all
have said goodbye or are silent. The outcome of another run (an earlier call of the command) is
forgotten, so that the same command goes on from the state that it finds.

Who says Hello, or is said to be alive, is not missing, however long its work takes. Recovery that
gets nowhere waits before it is tried again (`coordinator.backoff`).

Invariants: a decision is sent only once it is in the registry; a snapshot is committed only if
every part of it is durable; incarnations only grow; a run has one outcome.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from enum import Enum

from driftline.coordinator.backoff import Backoff
from driftline.coordinator.farewell import Farewell
from driftline.coordinator.members import Members
from driftline.coordinator.registry import ClusterState, RunOutcome, SnapshotRecord, WriteState
from driftline.engine.errors import SnapshotDamaged
from driftline.engine.labels import INFINITY
from driftline.engine.policy import Output, Policy, SnapshotCut
from driftline.engine.wire.messages import (
    Alive,
    BeginEpoch,
    Committed,
    Failed,
    Goodbye,
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
from driftline.engine.wire.party import Job

log = logging.getLogger("driftline")

MISSING_AFTER_S = 5.0
"""Silence after which a node or front counts as dead, unless said otherwise."""


ADVICE = (
    "Restore the state directory from a copy of the same moment, or begin anew: without the state "
    "directory, and without the outputs"
)


class Phase(Enum):
    """Where the run stands."""

    GATHERING = "waiting for nodes and fronts"
    WAITING = "waiting before the next recovery"
    DECIDING = "writing a new incarnation"
    LOADING = "nodes load a snapshot"
    RUNNING = "running"
    STOPPING = "writing how the run ended"
    STOPPED = "telling everybody that the run is over"
    ENDED = "over"
    BROKEN = "a new master is needed"


DECIDED = (Phase.STOPPING, Phase.STOPPED, Phase.ENDED, Phase.BROKEN)
"""Phases in which nothing that members say changes what comes of the run."""


@dataclass(slots=True)
class _Snapshot:
    """One that is being taken."""

    number: int
    time: int
    waiting: set[str]
    offsets: dict[int, int] = field(default_factory=dict)
    parts: dict[int, int] = field(default_factory=dict)
    failed: bool = False


class Coordinator:
    """Decides; `out` and `jobs` hold what it wants to be sent and written."""

    def __init__(
        self,
        nodes: int,
        fronts: int,
        policy: Policy,
        state: ClusterState,
        interval: float,
        run: str = "",
        missing_after_s: float = MISSING_AFTER_S,
    ) -> None:
        self.nodes = [f"node-{i}" for i in range(nodes)]
        self.fronts = [f"front-{i}" for i in range(fronts)]
        self.policy = policy
        self.state = state
        self.interval = interval
        self.phase = Phase.GATHERING
        self.out: list[tuple[str, Message]] = []
        self.jobs: list[Job] = []
        self.outcome: RunOutcome | None = None
        """How this run ends, once that is decided."""
        self.recoveries = 0
        self.snapshots = 0
        self._members = Members(missing_after_s)
        self._missing_after = missing_after_s
        self._backoff = Backoff()
        self._resume_at = 0.0
        """No recovery begins before."""
        self._ready: set[str] = set()
        self._snapshot: _Snapshot | None = None
        self._number = 0
        self._next_snapshot = 0.0
        self._last_time = 0
        self._writing: WriteState | None = None
        self._write_again = False
        self._now = 0.0
        self._damage = ""
        """Why a snapshot could not be loaded that was to be: it may explain what comes of that."""
        self._run_id = run
        self._farewell = Farewell(self.nodes + self.fronts, missing_after_s)
        if state.outcome is not None:
            if state.outcome.run == run:
                self.phase, self.outcome = Phase.STOPPED, state.outcome
            else:
                self.state = replace(state, outcome=None)

    @property
    def error(self) -> str:
        """Why the run was stopped, if it did not do what was asked."""
        if self.outcome is None or not self.outcome.error:
            return ""
        return f"{self.outcome.error}: {self.outcome.text}"

    @property
    def start(self) -> SnapshotRecord:
        """The snapshot that a recovery begins from; number 0 is the empty one."""
        if self.state.snapshots:
            return self.state.snapshots[0]
        return SnapshotRecord(0, 0, (0,) * len(self.fronts))

    @property
    def waits_for(self) -> str:
        """Where the run stands, and who has not answered; for people."""
        missing = [name for name in self.nodes + self.fronts if name not in self._members]
        if missing:
            return f"{self.phase.value}; nothing was heard of {', '.join(missing)}"
        if self.phase is Phase.LOADING:
            missing = sorted({*self.nodes} - self._ready)
            return f"{self.phase.value}; {', '.join(missing)} are not ready"
        if self._snapshot is not None and self._snapshot.waiting:
            who = ", ".join(sorted(self._snapshot.waiting))
            return f"{self.phase.value}; snapshot {self._snapshot.number} waits for {who}"
        return str(self.phase.value)

    # Members and failures.

    def hello(self, name: str, message: Hello) -> None:
        """A node or front is there, perhaps as a new process."""
        if name not in self.nodes and name not in self.fronts:
            return
        restarted = self._members.hello(name, message.process, message.address, self._now)
        if self.phase is Phase.STOPPED:
            self._farewell.hello(name, message.process)
            self._tell_outcome([name])
        elif self.phase in DECIDED:
            return
        elif restarted:
            self._recover(f"{name} has been restarted", paced=False)  # by whoever restarts it
        elif self.phase is Phase.GATHERING:
            self._recover("")
        elif message.incarnation < self.state.incarnation:
            self._tell_where_we_are(name)
        elif self.phase is Phase.LOADING and message.ready and name in self.nodes:
            self._ready.add(name)
            if len(self._ready) == len(self.nodes):
                self._run()

    def alive(self, name: str, message: Alive) -> None:
        """A process lives, though it may not have the time to say Hello."""
        self._members.alive(name, message.process, self._now)

    def all_heard(self, within_s: float) -> bool:
        """Whether everybody has said something so shortly ago."""
        return self._members.all_heard(self._now - within_s)

    def moved(self, processed: int, delivered: int) -> None:
        """The run has got as far as this."""
        self._backoff.moved(processed, delivered, self.snapshots)

    def lost(self, message: Lost) -> None:
        """Somebody misses something."""
        if message.incarnation == self.state.incarnation and self.phase is Phase.RUNNING:
            self._recover(message.reason)

    def failed(self, message: Failed) -> None:
        """The flow cannot go on."""
        if message.incarnation == self.state.incarnation and self.phase not in DECIDED:
            because = message.error == SnapshotDamaged.__name__ and self._damage
            self.stop(message.error, message.text + (f" ({because})" if because else ""))

    # The end of the run.

    def stop(self, error: str = "", text: str = "") -> None:
        """Decide to end the run; it is told once it is written."""
        self.phase = Phase.STOPPING
        self._snapshot = None
        self.outcome = RunOutcome(self._run_id, error, text)
        if self._writing is None:  # otherwise this write has to follow that one
            self._write(self.state.next(outcome=self.outcome))

    def _stopping(self) -> None:
        """A write is done since the end was decided."""
        if self.state.outcome is None:
            self._write(self.state.next(outcome=self.outcome))
            return
        self.phase = Phase.STOPPED
        self._tell_outcome(self.nodes + self.fronts)

    def _tell_outcome(self, names: list[str]) -> None:
        assert self.outcome is not None
        self._tell(names, Stop(self.outcome.run, self.outcome.error, self.outcome.text))

    def goodbye(self, name: str, message: Goodbye) -> None:
        """A member knows that the run is over."""
        if self.phase is Phase.STOPPED:
            self._farewell.goodbye(name, message.process)
            self._end_if_over()

    def _end_if_over(self) -> None:
        if self._farewell.over(self._now):
            self.phase = Phase.ENDED

    def tick(self, now: float) -> None:
        """Notice silence."""
        if now - self._now > self._missing_after / 2:
            self._members.all_alive(now)
        self._now = now
        if self.phase is Phase.STOPPED:
            self._end_if_over()
        silent = self._members.take_silent(now)
        if silent and self.phase in (Phase.DECIDING, Phase.LOADING, Phase.RUNNING):
            waited = self._members.silent_for(silent[0])
            self._recover(f"{', '.join(silent)} did not answer for {waited:g} s")
        if self.phase is Phase.WAITING and now >= self._resume_at:
            self._recover("")

    @property
    def deadline(self) -> float:
        """When it wants to be told the time again."""
        latest = self._now + self._missing_after / 4
        if self.phase is Phase.WAITING:
            return min(latest, self._resume_at)
        no_snapshot = self.policy.cut is SnapshotCut.NONE or self._snapshot is not None
        if self.phase is not Phase.RUNNING or no_snapshot:
            return latest
        return min(latest, max(self._next_snapshot, self._now + 0.001))

    # Recovery.

    def _recover(self, reason: str, paced: bool = True) -> None:
        self._snapshot = None
        if reason:
            self.recoveries += 1
            pause = self._backoff.pause_s() if paced else 0.0
            self._resume_at = max(self._resume_at, self._now + pause)
            log.warning("recovering: %s%s", reason, self._why_later(pause))
        if len(self._members) < len(self.nodes) + len(self.fronts):
            self.phase = Phase.GATHERING
            return
        if self._now < self._resume_at:
            self.phase = Phase.WAITING
            return
        self.phase = Phase.DECIDING
        if self._writing is None:
            self._write(self.state.next(incarnation=self.state.incarnation + 1))
        else:  # every write follows the one before: first it has to be known what came of that
            self._write_again = True

    def _why_later(self, pause: float) -> str:
        if not pause:
            return ""
        return f"; no progress since {self._backoff.nowhere} recoveries, the next in {pause:g} s"

    def _write(self, state: ClusterState) -> None:
        self._writing = WriteState(state)
        self.jobs.append(self._writing)

    def done(self, job: Job, result: object) -> None:
        """A write has been carried out, or failed."""
        if job is not self._writing or self.phase is Phase.BROKEN:
            return
        self._writing = None
        if isinstance(result, Exception):
            # Whether it was written is unknown; a new master can tell, by reading.
            log.error("the registry cannot be written: %s", result)
            self.phase = Phase.BROKEN
            return
        assert isinstance(job, WriteState)
        self.state = job.state
        if self.phase is Phase.STOPPING:
            self._stopping()
        elif self._write_again:
            self._write_again = False
            self._recover("")
        elif self.phase is Phase.DECIDING:
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
        incarnation, start, addresses = self.state.incarnation, self.start, self._members.addresses
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
        self._damage = reason
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
        self._snapshot = snapshot = _Snapshot(self._number, time, set())
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
