"""The coordinator: decides on snapshots, on recovery, and on the end of a run.

Takes: `Hello`, `Alive`, `Goodbye`, `Lost`, `Failed` and `Prepared` (members), `Unloadable` and
`PrepareFailed` (nodes), `Drained` (fronts), the time, and the progress of the run.
Gives: `Recover` and `Prepare` (nodes), `Start`, `BeginEpoch` and `Drain` (fronts), `Committed` and
`Stop` (members), and writes of the registry.
Invariants: a decision is sent only once the registry has it; a snapshot is committed only if every
part of it is durable; incarnations only grow; a run has one outcome.

Recovery (Delivery, consistency, and determinism, section V-B): a new incarnation is written to the
registry; nodes load the last committed snapshot, and their barriers fetch the consumer's last
bundle; when all nodes are ready, fronts replay from the snapshot's time. A run starts in the same
way, with an empty snapshot. After a recovery without progress comes a pause (`backoff.py`).

Snapshot (section V-A1): once every node has prepared, writing the snapshot's record is the commit.
Barriers take no part. The time of a snapshot is the *delivered* frontier: elements above it are
replayed, so a snapshot can never make the run skip an output that the consumer lacks.

End of a run: the outcome is written to the registry and no failure changes it from then on. This
master, and every later one of the same run, answers each hello with the outcome until all members
have said goodbye or are silent. The outcome of another run (an earlier call of the command) is
forgotten: the same command, given again, goes on from the state that it finds.

A member is missing only if it is silent: a process with long work to do still says `Alive`.
"""

from __future__ import annotations

from dataclasses import replace

from driftline.coordinator.backoff import Backoff
from driftline.coordinator.chronicle import Chronicle
from driftline.coordinator.draining import IN_GOOD_ORDER, Draining
from driftline.coordinator.farewell import Farewell
from driftline.coordinator.members import Members
from driftline.coordinator.phases import DECIDED, Phase
from driftline.coordinator.registry import ClusterState, RunOutcome, SnapshotRecord, WriteState
from driftline.coordinator.snapshots import ADVICE, PendingSnapshot
from driftline.coordinator.writing import Writing
from driftline.engine.errors import SnapshotDamaged
from driftline.engine.labels import INFINITY
from driftline.engine.policy import BY_TIME, Output, Policy, SnapshotCut
from driftline.engine.wire.messages import (
    Alive,
    BeginEpoch,
    Committed,
    Drain,
    Drained,
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

MISSING_AFTER_S = 5.0
"""Default of the silence, in seconds, after which a node or front counts as missing."""

HURRIED_EVERY_S = 0.5
"""Seconds from one snapshot to the next that members ask for: it may be the disk that is slow."""


class Coordinator:
    """Decides. `out`: (receiver, message) to be sent; `jobs`: writes of the registry to be done."""

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
        """`interval`: seconds between snapshots; `run` names this call of the command."""
        self.nodes = [f"node-{i}" for i in range(nodes)]
        self.fronts = [f"front-{i}" for i in range(fronts)]
        self.policy = policy
        self.state = state
        self.interval = interval
        self.phase = Phase.GATHERING
        self.out: list[tuple[str, Message]] = []
        self.jobs: list[Job] = []
        self.outcome: RunOutcome | None = None
        """How this run ends; None until that is decided."""
        self.recoveries = 0
        self.snapshots = 0
        self.members = Members(missing_after_s)
        self._missing_after = missing_after_s
        self._backoff = Backoff()
        self.chronicle = Chronicle()
        self._resume_at = 0.0
        """The end of the pause: no recovery begins before it."""
        self._ready: set[str] = set()
        self._snapshot: PendingSnapshot | None = None
        self._number = 0
        self._next_snapshot = 0.0
        self._begun_at = 0.0
        """When the last snapshot was begun."""
        self._last_time = 0
        self._writing = Writing()
        self._write_again = False
        self._now = 0.0
        self._damage = ""
        """Why the newest snapshot could not be loaded; it may explain why an older one cannot."""
        self._run_id = run
        self._draining = Draining(self.fronts, policy.cut)
        self._farewell = Farewell(self.nodes + self.fronts, missing_after_s)
        if state.outcome is not None:
            if state.outcome.run == run:
                self.phase, self.outcome = Phase.STOPPED, state.outcome
            else:
                self.state = replace(state, outcome=None)

    @property
    def error(self) -> str:
        """Why the run failed; empty if it did not, or is not over."""
        if self.outcome is None or not self.outcome.error:
            return ""
        return f"{self.outcome.error}: {self.outcome.text}"

    @property
    def start(self) -> SnapshotRecord:
        """The snapshot that a recovery begins from; number 0 is the empty snapshot."""
        if self.state.snapshots:
            return self.state.snapshots[0]
        return SnapshotRecord(0, 0, (0,) * len(self.fronts))

    @property
    def silent(self) -> list[tuple[str, str, float]]:
        """Nodes that the run cannot go on without and that are silent: see `Members.silent`."""
        return [] if self.phase in DECIDED else self.members.silent(self.nodes, self._now)

    @property
    def waits_for(self) -> str:
        """The phase of the run, and which members have not answered; for people."""
        missing = [name for name in self.nodes + self.fronts if name not in self.members]
        if missing:
            return f"{self.phase.value}; nothing was heard of {', '.join(missing)}"
        if self.phase is Phase.LOADING:
            missing = sorted({*self.nodes} - self._ready)
            return f"{self.phase.value}; not ready: {', '.join(missing)}"
        doing = f"{self.phase.value}{self._draining.why if self.is_draining else ''}"
        if self._snapshot is not None and self._snapshot.waiting:
            members = ", ".join(sorted(self._snapshot.waiting))
            return f"{doing}; snapshot {self._snapshot.number} waits for {members}"
        return doing

    @property
    def is_draining(self) -> bool:
        """Whether the run goes on only until it may end in good order."""
        return self.phase is Phase.RUNNING and bool(self._draining.why)

    # Members and failures.

    def hello(self, name: str, message: Hello) -> None:
        """A member is present, perhaps as a new process, and says what it has done so far."""
        if name not in self.nodes and name not in self.fronts:
            return
        restarted = self.members.hello(name, message.process, message.address, self._now)
        if self.phase is Phase.STOPPED:
            self._farewell.hello(name, message.process)
            self._tell_outcome([name])
        elif self.phase in DECIDED:
            return
        elif restarted:
            self._recover(f"{name} has been restarted", paced=False)  # the restart was paced
        elif self.phase is Phase.GATHERING:
            self._recover("")
        elif message.incarnation < self.state.incarnation:
            self._begin_incarnation_at(name)
        elif self.phase is Phase.LOADING and message.ready and name in self.nodes:
            self._ready.add(name)
            if len(self._ready) == len(self.nodes):
                self._run()

    def alive(self, name: str, message: Alive) -> None:
        """A process lives, though it may be too busy to say `Hello`."""
        self.members.alive(name, message.process, self._now)

    def all_heard(self, within_s: float) -> bool:
        """Whether every present member was heard in the last `within_s` seconds."""
        return self.members.all_heard(self._now - within_s)

    def moved(self, processed: int, delivered: int) -> None:
        """Note the progress of the run: the processed and the delivered frontier."""
        self._backoff.moved(processed, delivered, self.snapshots)

    def lost(self, message: Lost) -> None:
        """A member misses a message, or work makes no progress: recover."""
        if message.incarnation == self.state.incarnation and self.phase is Phase.RUNNING:
            self._recover(message.reason)

    def failed(self, message: Failed) -> None:
        """The flow cannot go on: end the run with this error."""
        if message.incarnation == self.state.incarnation and self.phase not in DECIDED:
            because = message.error == SnapshotDamaged.__name__ and self._damage
            self.stop(message.error, message.text + (f" ({because})" if because else ""))

    # The end of the run.

    def drained(self, name: str, message: Drained) -> None:
        """A front wants the run to end in good order, and has said up to where it sends."""
        self._draining.drained(name, message.time, bool(message.live))
        until = self._draining.until
        if until is not None and until < INFINITY:
            self._tell(self.fronts, Drain(until))

    def consider_end(self, processed: int, delivered: int, reached: int) -> None:
        """End a run once all is delivered and in the last snapshot; `reached`: see the tracker."""
        if processed >= INFINITY:
            self._draining.ended(reached)
        if self._draining.is_due(processed, delivered, self._number):
            self._next_snapshot = self._now
        if self._draining.is_over(delivered, self.start.number, self.start.time):
            self.stop(text="" if self._draining.has_ended else IN_GOOD_ORDER)

    def stop(self, error: str = "", text: str = "") -> None:
        """Decide to end the run. Members are told once the registry has the outcome."""
        self.phase = Phase.STOPPING
        self._snapshot = None
        self.outcome = RunOutcome(self._run_id, error, text)
        if not self._writing.under_way:  # else `_stopping` does it once that write is done
            self._write(self.state.next(outcome=self.outcome))

    def _stopping(self) -> None:
        """A write was done after the end was decided; it may be an earlier one."""
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
        """Learn the time (seconds, monotonic); notice silent members, and the end of a pause."""
        if now - self._now > self._missing_after / 2:
            self.members.all_alive(now, now - self._now)
        self._now = now
        self.jobs += self._writing.due(now)
        if self.phase is Phase.STOPPED:
            self._end_if_over()
        silent = self.members.take_silent(now)
        if silent and self.phase in (Phase.DECIDING, Phase.LOADING, Phase.RUNNING):
            waited = self.members.silent_for(silent[0])
            self._recover(f"{', '.join(silent)} did not answer for {waited:g} s")
        if self.phase is Phase.WAITING and now >= self._resume_at:
            self._recover("")

    @property
    def deadline(self) -> float:
        """When `tick` and `consider_snapshot` want to be called again (seconds, monotonic)."""
        latest = min(self._now + self._missing_after / 4, self._writing.again_at)
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
            self.chronicle.recovering(reason, self.recoveries, pause, self._backoff.nowhere)
        if len(self.members) < len(self.nodes) + len(self.fronts):
            self.phase = Phase.GATHERING
            return
        if self._now < self._resume_at:
            self.phase = Phase.WAITING
            return
        self.phase = Phase.DECIDING
        if not self._writing.under_way:
            self._write(self.state.next(incarnation=self.state.incarnation + 1))
        else:
            self._write_again = True

    def _write(self, state: ClusterState) -> None:
        self.jobs.append(self._writing.begin(state))

    def done(self, job: Job, result: object) -> None:
        """A write of the registry was carried out; `result` is an exception if it failed."""
        if not self._writing.over(job, result, self._now) or self.phase is Phase.BROKEN:
            return
        if isinstance(result, Exception):  # the registry holds something else than this master
            self.chronicle.registry_failed(result)
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
        self._draining = Draining(self.fronts, self.policy.cut)
        self._number = self.start.number
        self._last_time = self.start.time
        self.chronicle.loading(self.state.incarnation, self.start)
        for node in self.nodes:
            self._begin_incarnation_at(node)

    def _run(self) -> None:
        self.phase = Phase.RUNNING
        self._next_snapshot = self._now + self.interval
        self.chronicle.running(self.state.incarnation)
        for front in self.fronts:
            self._begin_incarnation_at(front)

    def _begin_incarnation_at(self, name: str) -> None:
        """Tell a node or front to begin the incarnation; repeated if the message was lost."""
        incarnation, start, addresses = self.state.incarnation, self.start, self.members.addresses
        if name in self.nodes and self.phase in (Phase.LOADING, Phase.RUNNING):
            number = start.number
            if self.policy.goes_on:  # the node's newest part has at least this number
                number = start.parts[self.nodes.index(name)] if start.parts else 0
            same_code = int(self.state.same_code(start))
            recover = Recover(incarnation, number, start.taken, start.time, addresses, same_code)
            self._tell([name], recover)
        elif name in self.fronts and self.phase is Phase.RUNNING:
            offset = start.offsets[self.fronts.index(name)] if self.policy.replay else -1
            self._tell([name], Start(incarnation, offset, addresses))

    def unloadable(self, sender: str, message: Unloadable) -> None:
        """A node cannot load a snapshot: go back to the one before, or end the run."""
        if message.incarnation != self.state.incarnation or self.phase is not Phase.LOADING:
            return
        reason = f"{sender} cannot load snapshot {message.number}: {message.reason}"
        older = tuple(s for s in self.state.snapshots if s.number < message.number)
        # Outputs left because this snapshot was committed: the one before does not fit them.
        outputs_left = self.policy.output in (Output.COMMIT, Output.DURABLE)
        if outputs_left or not message.number or (self.state.base and not older):
            self.stop("SnapshotDamaged", f"{reason}. {ADVICE}")
            return
        self.chronicle.damaged(reason, message.number)
        self._damage = reason
        self.phase = Phase.DECIDING
        self._write(self.state.next(incarnation=self.state.incarnation + 1, snapshots=older))

    # Snapshots.

    def hurry(self) -> None:
        """A node or front asks for a snapshot before it is due, as much waits for it."""
        self._next_snapshot = min(self._next_snapshot, self._begun_at + HURRIED_EVERY_S)

    def consider_snapshot(self, delivered: int) -> None:
        """Begin a snapshot, as of the delivered frontier, or the end, if it is due and new."""
        if (
            self.policy.cut is SnapshotCut.NONE
            or self.phase is not Phase.RUNNING
            or self._snapshot is not None
            or self._now < self._next_snapshot
        ):
            return
        self._next_snapshot = self._now + self.interval
        by_time = self.policy.cut in BY_TIME
        self._begun_at = self._now
        time = delivered if by_time else 0
        if by_time and (time <= self._last_time or time >= INFINITY):
            return
        self._number += 1
        self._snapshot = snapshot = PendingSnapshot(self._number, time, set())
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
        snapshot.answers[sender] = message.offset
        self._answered(snapshot, sender)

    def prepare_failed(self, sender: str, message: PrepareFailed) -> None:
        """A node could not write its part: give this snapshot up; a later one is tried."""
        snapshot = self._snapshot
        if snapshot is None or message.number != snapshot.number:
            return
        self.chronicle.snapshot_failed(message.number, sender, message.reason)
        snapshot.failed = True
        self._answered(snapshot, sender)

    def _answered(self, snapshot: PendingSnapshot, sender: str) -> None:
        """Decide once all have answered, not before: there is never a second snapshot under way."""
        snapshot.waiting.discard(sender)
        if snapshot.waiting or self._writing.under_way:
            return
        if snapshot.failed:
            self._snapshot = None
            self._next_snapshot = max(self._next_snapshot, self._now + HURRIED_EVERY_S)
            return
        nodes = self.nodes if self.policy.goes_on else ()
        record = snapshot.record(self.fronts, nodes, self.state.incarnation)
        self._write(self.state.next(snapshots=(record, *self.state.snapshots[:1])))

    def _committed(self) -> None:
        assert self._snapshot is not None
        self._last_time = self._snapshot.time
        self.snapshots += 1
        number = self._snapshot.number
        self.chronicle.snapshot(number, self._last_time)
        self._snapshot = None
        oldest = self.state.snapshots[-1]
        before = oldest.number if oldest.number < number else 0
        self._tell(self.nodes, Committed(number, before, 0, 0))
        offsets = zip(oldest.offsets, self.start.offsets, strict=True)
        for front, (trim, offset) in zip(self.fronts, offsets, strict=True):
            self._tell([front], Committed(number, before, trim, offset))

    def _tell(self, names: list[str], message: Message) -> None:
        self.out += [(name, message) for name in names]
