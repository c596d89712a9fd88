"""The coordinator: decides on snapshots, on recovery, and on the end of a run.

Takes: `Hello`, `Alive`, `Goodbye`, `Lost`, `Failed` and `Prepared` (members), `Unloadable` and
`PrepareFailed` (nodes), the time, the progress of the run, and how many nodes it is to have.
Gives: `Recover` and `Prepare` (nodes), `Start` and `BeginEpoch` (fronts), `Committed` and
`Stop` (members), and writes of the registry.
Invariants: a decision is sent only once the registry has it; a snapshot is committed only if every
part of it is durable; incarnations only grow; a run has one outcome.

Recovery (Delivery, consistency, and determinism, section V-B): a new incarnation is written to the
registry; nodes load the last committed snapshot, and their barriers fetch the consumer's last
bundle; when all nodes are ready, fronts replay from the snapshot's time. A run starts in the same
way, with an empty snapshot. After a recovery without progress comes a pause (`backoff.py`).

The end of a run is in `deciding.py`, the way to another number of nodes in `resizing.py`.

A member is missing only if it is silent: a process with long work to do still says `Alive`.

A master that follows another one in the same call takes its incarnation over, without a recovery,
if all members are in it (`takeover.py`). One that does not reach a member may make way for the next
(`making_way.py`).
"""

from __future__ import annotations

from dataclasses import replace

from driftline.coordinator.backoff import Backoff
from driftline.coordinator.beginning import begin, recover
from driftline.coordinator.chronicle import Chronicle
from driftline.coordinator.deciding import Deciding
from driftline.coordinator.draining import Draining
from driftline.coordinator.farewell import Farewell
from driftline.coordinator.members import Members
from driftline.coordinator.phases import DECIDED, UNDER_WAY, Phase
from driftline.coordinator.reach import Reach
from driftline.coordinator.registry import ClusterState, WriteState
from driftline.coordinator.resizing import Resizing
from driftline.coordinator.snapshots import ADVICE, Snapshots
from driftline.coordinator.takeover import Takeover
from driftline.engine.errors import SnapshotDamaged
from driftline.engine.keygroups import GROUPS, names_of
from driftline.engine.policy import Output, Policy
from driftline.engine.wire.messages import (
    Alive,
    Failed,
    Following,
    Hello,
    Lead,
    Lost,
    Prepared,
    PrepareFailed,
    Stop,
    Unloadable,
)
from driftline.engine.wire.party import Job

MISSING_AFTER_S = 5.0
"""Default of the silence, in seconds, after which a node or front counts as missing."""

RESTARTED = "the master has been restarted"


class Coordinator(Deciding):
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
        groups: int = GROUPS,
    ) -> None:
        """`nodes`: how many, if the registry has no layout yet; `interval`: seconds between
        snapshots; `run` names this call of the command; `session`: its number, see
        `ClusterState.opened`; `process`: of the master; `groups`: how many key groups there are."""
        layout = state.layout or tuple(range(nodes))
        follows = bool(session) and state.opened == session and state.outcome is None
        opened = replace(state, opened=session or state.opened, layout=layout)
        super().__init__(names_of(layout), fronts, policy, opened, run, missing_after_s, process)
        self.recoveries = 0
        self.taken_over = False
        """Whether this master went on with the incarnation that it found."""
        self.members = Members(missing_after_s)
        self._reach = Reach()
        self._gathers_since = 0.0
        self._backoff = Backoff()
        self.chronicle = Chronicle()
        self.snapshots = Snapshots(self.nodes, self.fronts, policy, interval, self.chronicle)
        about = self.snapshots, self.chronicle, self.nodes, self.members, groups, missing_after_s
        self.resizing = Resizing(policy, self.fronts, *about)
        self._resume_at = 0.0
        """The end of the pause: no recovery begins before it."""
        self._ready: set[str] = set()
        self._takeover: Takeover | None = None
        """How this master takes an incarnation over; None if it has begun one, or has to."""
        self._follows = follows
        """Whether there was a master before it in the same call, and nothing was decided since."""
        self._write_again = False
        self._damage = ""
        """Why the newest snapshot could not be loaded; it may explain why an older one cannot."""
        if self._follows and policy.ordered:
            self._takeover = Takeover(state.incarnation, self.nodes, self.nodes + self.fronts)

    @property
    def silent(self) -> list[tuple[str, str, float]]:
        """Nodes of this layout, and of the next one, that are silent: see `Members.silent`."""
        if self.phase in DECIDED:
            return []
        joining = self.resizing.heard.silent(self.resizing.names, self._now)
        return self.members.silent(self.nodes, self._now) + joining

    @property
    def missed(self) -> dict[str, float]:
        """Member that the run needs and that this master does not reach -> for how many seconds:
        nothing is heard of it, or it does not answer."""
        if self.phase in (Phase.STOPPING, Phase.ENDED, Phase.BROKEN):
            return {}
        missed = self._reach.deaf
        if self.phase is Phase.GATHERING:
            absent = [name for name in self.nodes + self.fronts if name not in self.members]
            missed |= dict.fromkeys(absent, self._now - self._gathers_since)
        return missed

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

    # Members and failures.

    def has(self, name: str) -> bool:
        """Whether this is the name of a member."""
        return name in self.nodes or name in self.fronts

    def hello(self, name: str, message: Hello) -> None:
        """A member is present, perhaps as a new process, and says what it has done so far."""
        if not self.has(name):
            self._hello_of_another(name, message)
            return
        self._reach.hello(name, message.process, self._now)
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

    def _hello_of_another(self, name: str, message: Hello) -> None:
        """A node of the next layout is present, or one of an earlier layout, which may end."""
        if self.phase is Phase.STOPPED:
            self._tell_outcome([name])
            return
        process = message.process, message.address
        if not self.resizing.hello(name, *process, self.state, self._now) and self.leads:
            self._tell([name], Stop(self._run_id, "", "other nodes have taken over"))
        self._pass_on_resizing()

    def alive(self, name: str, message: Alive) -> None:
        """A process lives, though it may be too busy to say `Hello`."""
        group = self.members if self.has(name) else self.resizing
        group.alive(name, message.process, self._now)

    def superseded(self, reason: object = "another master has taken over") -> None:
        """A registry or a member knows of a later master: this one decides nothing any more."""
        if self.phase is not Phase.BROKEN:
            self.chronicle.registry_failed(reason)
            self.phase = Phase.BROKEN

    def ask_who_hears(self) -> None:
        """Ask all members whether they hear this master, if they obey it."""
        if self.phase is Phase.STOPPED or (self.leads and self.phase not in DECIDED):
            self._ask_to_follow(self.nodes + self.fronts)

    def make_way(self) -> None:
        """The master behind this one is to lead: this one decides nothing any more."""
        absent = [name for name in self.missed if name not in self.members]
        deaf = [name for name in self.missed if name in self.members]
        self.chronicle.makes_way(absent, deaf, max(self.missed.values()))
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

    # Time.

    def tick(self, now: float) -> None:
        """Learn the time (seconds, monotonic); notice silent members, and the end of a pause."""
        if now - self._now > self._missing_after / 2:
            for group in (self.members, self.resizing.heard):
                group.all_alive(now, now - self._now)
            self._gathers_since += now - self._now
        self._now = now
        self.jobs += self._writing.due(now)
        if self.phase is Phase.STOPPED:
            self._end_if_over()
        self.resizing.heard.take_silent(now)
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
        latest = min(latest, self.resizing.deadline)
        if self.phase is Phase.WAITING:
            return min(latest, self._resume_at)
        due_at = self.snapshots.due_at
        if self.phase is not Phase.RUNNING or due_at is None or self.resizing.holds:
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
            self._ask_to_follow([name])

    def _ask_to_follow(self, names: list[str]) -> None:
        self._tell(names, Lead())
        self._reach.asked(names, self._now)

    def following(self, name: str, message: Following) -> None:
        """A member knows that this master leads; once all do, the incarnation goes on."""
        self._reach.answered(name)
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
        self.resizing.take_over()
        self._pass_on_resizing()
        if self.state.snapshots:
            self.out += self.snapshots.tell(self.state)

    # Recovery.

    def _recover(self, reason: str, paced: bool = True) -> None:
        self.snapshots.pending = None
        self.resizing.interrupted()
        self._takeover, self._follows = None, False
        if reason:
            self.recoveries += 1
            pause = self._backoff.pause_s() if paced else 0.0
            self._resume_at = max(self._resume_at, self._now + pause)
            self.chronicle.recovering(reason, self.recoveries, pause, self._backoff.nowhere)
        if len(self.members) < len(self.nodes) + len(self.fronts):
            if self.phase is not Phase.GATHERING:
                self.phase, self._gathers_since = Phase.GATHERING, self._now
            return
        if self._now < self._resume_at:
            self.phase = Phase.WAITING
            return
        self.phase = Phase.DECIDING
        if not self._writing.under_way:
            self._write(self.state.next(incarnation=self.state.incarnation + 1))
        else:
            self._write_again = True

    def done(self, job: Job, result: object) -> None:
        """A write of the registry was carried out; `result` is an exception if it failed."""
        if not self._writing.over(job, result, self._now) or self.phase is Phase.BROKEN:
            return
        if isinstance(result, Exception):  # the registry holds something else than this master
            self.superseded(result)
            return
        assert isinstance(job, WriteState)
        self.state = job.state
        if self.nodes != names_of(job.state.layout):
            self._resized()
        if self.phase is Phase.STOPPING:
            self._stopping()
        elif self._write_again:
            self._write_again = False
            self._recover("")
        elif self.phase is Phase.DECIDING:
            self._load()
        elif self.phase is Phase.TAKING_OVER:
            self.phase = Phase.ASKING
            self._ask_to_follow(self.nodes + self.fronts)
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
        about = self.policy, self.members.addresses
        if name in self.nodes and self.phase in (Phase.LOADING, Phase.RUNNING):
            self._tell([name], recover(self.state, self.start, self.nodes.index(name), *about))
        elif name in self.fronts and self.phase is Phase.RUNNING:
            self._tell([name], begin(self.state, self.start, self.fronts.index(name), *about))

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

    # Other nodes.

    def resize(self, nodes: int, first: int = 0) -> None:
        """The run is to have so many nodes; `first`: see `Resize`. May be repeated."""
        if self.phase not in DECIDED and not self.is_draining:
            self.resizing.ask(nodes, self.state.layout, first)
            self._pass_on_resizing()

    def consider_resizing(self, delivered: int, left: int | None) -> None:
        """Go on with the way to the next layout; `left`: see `Gathered.left`."""
        if self.phase is not Phase.RUNNING:
            return
        if self.is_draining:
            self.resizing.give_up("the run is about to end")
        cut = self.resizing.look(self.state, delivered, left, self._now)
        self._pass_on_resizing()
        if cut is not None:
            self.phase = Phase.DECIDING
            begins = {"incarnation": self.state.incarnation + 1, "layout": self.resizing.layout}
            self._write(self.state.next(**begins, snapshots=(cut,), base=cut.number))

    def _resized(self) -> None:
        """The registry has another layout."""
        self.members.forget(self.nodes)
        self._reach.forget(self.nodes)
        self.nodes[:] = names_of(self.state.layout)
        for name, process, address in self.resizing.processes():
            self.members.hello(name, process, address, self._now)
        self.resizing.forget()
        self._farewell = Farewell(self.nodes + self.fronts, self._missing_after)
        self.chronicle.resized(self.nodes, self.start.time)

    def _pass_on_resizing(self) -> None:
        self.out += self.resizing.out
        self.resizing.out = []

    # Snapshots.

    def consider_snapshot(self, delivered: int) -> None:
        """Begin a snapshot, as of the delivered frontier, or the end, if it is due and new."""
        if self.phase is Phase.RUNNING and not self.resizing.holds:
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
