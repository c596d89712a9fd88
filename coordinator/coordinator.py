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

End of a run: the outcome is written to the registry and no failure changes it from then on. This
master, and every later one of the same run, answers each hello with the outcome until all members
have said goodbye or are silent. The outcome of another run (an earlier call of the command) is
forgotten: the same command, given again, goes on from the state that it finds.

A member is missing only if it is silent: a process with long work to do still says `Alive`.

A master that follows another one in the same call takes its incarnation over, without a recovery,
if all members are in it (`takeover.py`).
"""

from __future__ import annotations

from dataclasses import replace

from driftline.coordinator.backoff import Backoff
from driftline.coordinator.chronicle import Chronicle
from driftline.coordinator.draining import IN_GOOD_ORDER, Draining
from driftline.coordinator.farewell import Farewell
from driftline.coordinator.members import Members
from driftline.coordinator.phases import DECIDED, UNDER_WAY, Phase
from driftline.coordinator.registry import ClusterState, RunOutcome, SnapshotRecord, WriteState
from driftline.coordinator.snapshots import ADVICE, Snapshots
from driftline.coordinator.takeover import Takeover
from driftline.coordinator.writing import Writing
from driftline.engine.errors import SnapshotDamaged
from driftline.engine.keygroups import names_of
from driftline.engine.labels import INFINITY
from driftline.engine.policy import Output, Policy
from driftline.engine.wire.messages import (
    Alive,
    Drain,
    Drained,
    Failed,
    Following,
    Goodbye,
    Hello,
    Lead,
    Lost,
    Message,
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

RESTARTED = "the master has been restarted"


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
        session: int = 0,
        process: str = "",
    ) -> None:
        """`nodes`: how many, if the registry has no layout yet; `interval`: seconds between
        snapshots; `run` names this call of the command; `session`:
        its number, see `ClusterState.opened`; `process`: of the master."""
        layout = state.layout or tuple(range(nodes))
        self.nodes = names_of(layout)
        """Of the layout that the registry has."""
        self.fronts = [f"front-{i}" for i in range(fronts)]
        self.policy = policy
        self.state = state
        self.phase = Phase.GATHERING
        self.out: list[tuple[str, Message]] = []
        self.jobs: list[Job] = []
        self.outcome: RunOutcome | None = None
        """How this run ends; None until that is decided."""
        self.recoveries = 0
        self.taken_over = False
        """Whether this master went on with the incarnation that it found."""
        self.members = Members(missing_after_s)
        self._missing_after = missing_after_s
        self._backoff = Backoff()
        self.chronicle = Chronicle()
        self.snapshots = Snapshots(self.nodes, self.fronts, policy, interval, self.chronicle)
        self._resume_at = 0.0
        """The end of the pause: no recovery begins before it."""
        self._ready: set[str] = set()
        self._takeover: Takeover | None = None
        """How this master takes an incarnation over; None if it has begun one, or has to."""
        self._follows = bool(session) and state.opened == session and state.outcome is None
        """Whether there was a master before it in the same call, and nothing was decided since."""
        self._writing = Writing(process)
        self._write_again = False
        self._now = 0.0
        self._damage = ""
        """Why the newest snapshot could not be loaded; it may explain why an older one cannot."""
        self._run_id = run
        self._draining = Draining(self.fronts, policy.cut)
        self._farewell = Farewell(self.nodes + self.fronts, missing_after_s)
        if state.outcome is not None and state.outcome.run == run:
            self.phase, self.outcome = Phase.STOPPED, state.outcome
        else:
            opened = session or state.opened
            self.state = replace(state, outcome=None, opened=opened, layout=layout)
        if self._follows and policy.ordered:
            self._takeover = Takeover(state.incarnation, self.nodes, self.nodes + self.fronts)

    @property
    def error(self) -> str:
        """Why the run failed; empty if it did not, or is not over."""
        if self.outcome is None or not self.outcome.error:
            return ""
        return f"{self.outcome.error}: {self.outcome.text}"

    @property
    def start(self) -> SnapshotRecord:
        """The snapshot that a recovery begins from; number 0 is the empty snapshot."""
        empty = SnapshotRecord(0, 0, (0,) * len(self.fronts))
        return self.state.snapshots[0] if self.state.snapshots else empty

    @property
    def leads(self) -> bool:
        """Whether the registry has the epoch of this master."""
        return self._writing.begun

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
        if self.phase is Phase.ASKING and self._takeover is not None:
            return f"{self.phase.value}; no answer of {', '.join(self._takeover.missing)}"
        doing = f"{self.phase.value}{self._draining.why if self.is_draining else ''}"
        return doing + self.snapshots.waits_for

    @property
    def is_draining(self) -> bool:
        """Whether the run goes on only until it may end in good order."""
        return self.phase is Phase.RUNNING and bool(self._draining.why)

    # Members and failures.

    def has(self, name: str) -> bool:
        """Whether this is the name of a member."""
        return name in self.nodes or name in self.fronts

    def hello(self, name: str, message: Hello) -> None:
        """A member is present, perhaps as a new process, and says what it has done so far."""
        if name not in self.nodes and name not in self.fronts:
            return
        restarted = self.members.hello(name, message.process, message.address, self._now)
        if self._takeover is not None:
            self._takeover.hello(name, message)
        if self.phase is Phase.STOPPED:
            self._farewell.hello(name, message.process)
            self._tell_outcome([name])
        elif self.phase in DECIDED:
            return
        elif restarted:
            self._recover(f"{name} has been restarted", paced=False)  # the restart was paced
        elif self.phase is Phase.GATHERING:
            self._gathered()
        elif self._takeover is not None:
            self._go_on_taking_over(self._takeover, name)
        elif message.incarnation < self.state.incarnation:
            self._begin_incarnation_at(name)
        elif self.phase is Phase.LOADING and message.ready and name in self.nodes:
            self._ready.add(name)
            if len(self._ready) == len(self.nodes):
                self._run()

    def alive(self, name: str, message: Alive) -> None:
        """A process lives, though it may be too busy to say `Hello`."""
        self.members.alive(name, message.process, self._now)

    def superseded(self, reason: object = "another master has taken over") -> None:
        """A registry or a member knows of a later master: this one decides nothing any more."""
        if self.phase is not Phase.BROKEN:
            self.chronicle.registry_failed(reason)
            self.phase = Phase.BROKEN

    def moved(self, processed: int, delivered: int) -> None:
        """Note the progress of the run: the processed and the delivered frontier."""
        self._backoff.moved(processed, delivered, self.snapshots.committed)

    def lost(self, message: Lost) -> None:
        """A member misses a message, or work makes no progress: recover."""
        if message.incarnation == self.state.incarnation and self.phase in UNDER_WAY:
            self._recover(message.reason)

    def failed(self, message: Failed) -> None:
        """The flow cannot go on: end the run with this error."""
        if message.incarnation == self.state.incarnation and self.phase not in DECIDED:
            because = message.error == SnapshotDamaged.__name__ and self._damage
            self.stop(message.error, message.text + (f" ({because})" if because else ""))

    # The end of the run.

    def drained(self, name: str, message: Drained) -> None:
        """A front wants the run to end in good order, and has said up to where it sends."""
        self._draining.drained(name, message.time, bool(message.live), bool(message.ended))
        until = self._draining.until
        if until is not None and until < INFINITY:
            self._tell(self.fronts, Drain(until))

    def consider_end(self, processed: int, delivered: int, reached: int) -> None:
        """End a run once all is delivered and in the last snapshot; `reached`: see the tracker."""
        if processed >= INFINITY:
            self._draining.ended(reached)
        if self._draining.is_due(processed, delivered, self.snapshots.number):
            self.snapshots.make_due(self._now)
        if self._draining.is_over(delivered, self.start.number, self.start.time):
            self.stop(text="" if self._draining.has_ended else IN_GOOD_ORDER)

    def stop(self, error: str = "", text: str = "") -> None:
        """Decide to end the run. Members are told once the registry has the outcome."""
        self.phase = Phase.STOPPING
        self.snapshots.pending = None
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
        if silent and self.phase in (Phase.DECIDING, *UNDER_WAY):
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
        due_at = self.snapshots.due_at
        if self.phase is not Phase.RUNNING or due_at is None:
            return latest
        return min(latest, max(due_at, self._now + 0.001))

    # Taking over.

    def _gathered(self) -> None:
        """Go on from here, once all members are present."""
        if len(self.members) < len(self.nodes) + len(self.fronts):
            return
        if not self._follows:
            self._recover("")
        elif self._takeover is not None and self._takeover.possible:
            self.phase = Phase.TAKING_OVER
            self._write(self.state.next())
        else:
            self._recover(RESTARTED, paced=False)

    def _go_on_taking_over(self, takeover: Takeover, name: str) -> None:
        """A member has said hello meanwhile."""
        if not takeover.possible:
            self._recover(RESTARTED, paced=False)
        elif self.phase is Phase.ASKING and name in takeover.missing:
            self._tell([name], Lead())

    def following(self, name: str, message: Following) -> None:
        """A member knows that this master leads; once all do, the incarnation goes on."""
        incarnation, epoch = self.state.incarnation, self.state.epoch
        if self._takeover is None or (message.incarnation, message.epoch) != (incarnation, epoch):
            return
        self._takeover.answer(name, message)
        if self.phase is Phase.ASKING and not self._takeover.missing:
            self._lead(self._takeover)

    def _lead(self, takeover: Takeover) -> None:
        """Go on with the incarnation: everybody obeys this master."""
        self._takeover, self._follows, self.taken_over = None, False, True
        self.phase = Phase.RUNNING
        self.chronicle.taken_over(self.state.incarnation)
        self.snapshots.begin_from(self.start, self._now)
        self.snapshots.give_up(takeover.asked, takeover.at_work)
        if self.state.snapshots:
            self.out += self.snapshots.tell(self.state)

    # Recovery.

    def _recover(self, reason: str, paced: bool = True) -> None:
        self.snapshots.pending = None
        self._takeover, self._follows = None, False
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
            self.superseded(result)
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
        elif self.phase is Phase.TAKING_OVER:
            self.phase = Phase.ASKING
            self._tell(self.nodes + self.fronts, Lead())
        elif self.phase is Phase.RUNNING:
            self.out += self.snapshots.commit(self.state)

    def _load(self) -> None:
        self.phase = Phase.LOADING
        self._ready.clear()
        self._draining = Draining(self.fronts, self.policy.cut)
        self.chronicle.loading(self.state.incarnation, self.start)
        for node in self.nodes:
            self._begin_incarnation_at(node)

    def _run(self) -> None:
        self.phase = Phase.RUNNING
        self.snapshots.begin_from(self.start, self._now)
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
            begins = incarnation, number, start.taken, start.time, addresses, same_code
            self._tell([name], Recover(*begins, self.state.layout))
        elif name in self.fronts and self.phase is Phase.RUNNING:
            offset = start.offsets[self.fronts.index(name)] if self.policy.replay else -1
            self._tell([name], Start(incarnation, offset, addresses, self.state.layout))

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

    def consider_snapshot(self, delivered: int) -> None:
        """Begin a snapshot, as of the delivered frontier, or the end, if it is due and new."""
        if self.phase is Phase.RUNNING:
            self.out += self.snapshots.consider(delivered, self._now)

    def prepared(self, sender: str, message: Prepared) -> None:
        """A part of the snapshot is durable."""
        self.snapshots.prepared(sender, message)
        self._commit()

    def prepare_failed(self, sender: str, message: PrepareFailed) -> None:
        """A node could not write its part."""
        self.snapshots.prepare_failed(sender, message)
        self._commit()

    def _commit(self) -> None:
        if self.phase is not Phase.RUNNING or self._writing.under_way:
            return
        record = self.snapshots.to_commit(self.state.incarnation, self._now)
        if record is not None:
            self._write(self.state.next(snapshots=(record, *self.state.snapshots[:1])))

    def _tell(self, names: list[str], message: Message) -> None:
        self.out += [(name, message) for name in names]
