"""Coordinator: decides on snapshots, on recovery, and on the end of a run.

Inputs: messages of members, results of registry writes, the time, the progress of the run, and the
requested number of nodes. Outputs: `Recover` and `Prepare` (nodes), `Start`, `SendMarker` and
`Drain` (fronts), `Committed`, `Lead` and `Stop` (members), the messages of `rescaling.py`, and
writes of the registry. Invariants: a decision is sent only after the registry has it; a snapshot is
committed only after every part of it is durable; incarnations only grow; a run has one outcome; all
members of an incarnation begin with the same layout, and from the same snapshot (under the policy
strong-productions, each node begins from its own newest part).

Recovery (paper "Delivery, consistency, and determinism", section V-B): the coordinator writes a new
incarnation to the registry; nodes load the last committed snapshot, and their barriers fetch the
consumer's last bundle; when all nodes are ready, fronts replay from the snapshot's time. A run
starts in the same way, from the newest snapshot in the registry, or from the empty snapshot 0 if
the registry has none. Recoveries without progress back off (`Backoff`).

Once the registry has the outcome of a run, no failure changes it. This master, and every later one
of the same run, answers each hello with the outcome until all members have said goodbye or are
silent (`draining.py`). Repeating the command continues from the stored state. `rescaling.py`
changes the number of nodes; `leadership.py` takes over from another master.
"""

from __future__ import annotations

from enum import Enum

from msgspec.structs import replace

from driftline.coordinator.draining import ENDED_ON_REQUEST, Draining, ShutdownWait
from driftline.coordinator.leadership import Takeover
from driftline.coordinator.members import Backoff, Members
from driftline.coordinator.registry import (
    ClusterState,
    RegistryWriter,
    RunOutcome,
    SnapshotRecord,
    WriteState,
)
from driftline.coordinator.rescaling import Rescaling
from driftline.coordinator.snapshots import ADVICE, Snapshots, snapshot_name
from driftline.engine.errors import SnapshotDamaged
from driftline.engine.events import event_fields, log
from driftline.engine.keygroups import GROUPS, node_names
from driftline.engine.labels import INFINITY
from driftline.engine.meters import Histogram
from driftline.engine.policy import Policy
from driftline.engine.texts import format_time
from driftline.engine.wire.messages import (
    Alive,
    Drain,
    EndOfInput,
    Failed,
    FollowsMaster,
    Goodbye,
    Hello,
    Lead,
    Message,
    MessageLost,
    Prepared,
    PrepareFailed,
    Recover,
    Start,
    Stop,
    Unloadable,
)
from driftline.engine.wire.role import IOJob

MISSING_AFTER_S = 5.0
"""Default number of seconds without a heartbeat after which a node or front counts as absent."""

RESTARTED = "the master has been restarted"


class Phase(Enum):
    """Phase of the coordinator, with human-readable values.

        GATHERING -> DECIDING -> LOADING -> RUNNING -> STOPPING -> STOPPED -> ENDED
                  -> TAKING_OVER -> ASKING -> RUNNING

    A failure leads from any phase before STOPPING to DECIDING again: through GATHERING if a member
    is absent, through WAITING if recoveries make no progress. A rescaling also leads from RUNNING
    to DECIDING. SUPERSEDED: a later master exists, the registry rejected a write, or this master
    has stepped down; only a new master can continue.
    """

    GATHERING = "waiting for nodes and fronts"
    WAITING = "waiting before the next recovery"
    TAKING_OVER = "recording that a new master leads"
    ASKING = "asking nodes and fronts to follow this master"
    DECIDING = "writing a new incarnation"
    LOADING = "nodes load a snapshot"
    RUNNING = "running"
    STOPPING = "writing how the run ended"
    STOPPED = "sending the outcome to all members"
    ENDED = "over"
    SUPERSEDED = "a new master is needed"


NO_MORE_DECISIONS = (Phase.STOPPING, Phase.STOPPED, Phase.ENDED, Phase.SUPERSEDED)
"""Phases in which no message of a member changes the outcome of the run."""

IN_PROGRESS = (Phase.TAKING_OVER, Phase.ASKING, Phase.LOADING, Phase.RUNNING)
"""Phases with an incarnation in progress, which a failure ends."""


class Coordinator:
    """Decisions of one master. `out`: (receiver, message) to send; `jobs`: registry writes."""

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
        """Begin from `state`, the contents of the registry.

        `nodes`: number of nodes if the registry has no layout yet; `fronts`: number of fronts;
        `interval`: seconds between snapshots; `run`: id of this call of the command; `session`:
        number of this call, see `ClusterState.last_session`; `missing_after_s`: the usual timeout
        of a member; `process`: token of the master's process; `groups`: number of key groups.
        """
        layout = state.layout or tuple(range(nodes))
        self.nodes = node_names(layout)
        """The nodes of the layout in the registry."""
        self.fronts = [f"front-{i}" for i in range(fronts)]
        self.policy = policy
        self.out: list[tuple[str, Message]] = []
        self.jobs: list[IOJob] = []
        self.now = 0.0
        """Time of the driver (seconds, monotonic)."""
        self.phase = Phase.GATHERING
        self.outcome: RunOutcome | None = None
        """The outcome of this run; None until it is decided."""
        self._succeeds_earlier_master = (
            bool(session) and state.last_session == session and state.outcome is None
        )
        """Whether an earlier master led the same call of the command, and this master has neither
        taken over nor begun a recovery yet."""
        if state.outcome is not None and state.outcome.run == run:
            self.phase, self.outcome = Phase.STOPPED, state.outcome
        self.state = replace(
            state, last_session=session or state.last_session, layout=layout, outcome=self.outcome
        )
        self.recoveries = 0
        self.recovery_durations = Histogram()
        """For each finished recovery: seconds from its cause until all nodes were ready."""
        self.taken_over = False
        """Whether this master continued the incarnation of an earlier master."""
        self.members = Members(missing_after_s)
        self.snapshots = Snapshots(self.nodes, self.fronts, policy, interval)
        arguments = policy, self.fronts, self.snapshots, self.nodes, self.members, groups
        self.rescaling = Rescaling(*arguments)
        self._run_id = run
        self._missing_after = missing_after_s
        self._writer = RegistryWriter(process)
        self._recover_after_write = False
        """Whether to begin another incarnation once the pending write is done."""
        self._draining = Draining(self.fronts, policy)
        self._shutdown = ShutdownWait(self.nodes + self.fronts, missing_after_s)
        self._gathering_since = 0.0
        """When this master began to wait for absent members."""
        self._down_since: float | None = None
        """When the run went down: at the cause of the current recovery; at a start or a rescaling,
        when the nodes began to load. None while the run is up, and before a start."""
        self._is_recovering = False
        """Whether the run is down because of a failure."""
        self._backoff = Backoff()
        self._recover_at = 0.0
        """End of the back-off before the next recovery."""
        self._ready: set[str] = set()
        """Nodes that have loaded the snapshot of this incarnation."""
        self._takeover: Takeover | None = None
        """Takeover of an earlier master's incarnation; None if it is done or not possible."""
        if self._succeeds_earlier_master and policy.ordered:
            self._takeover = Takeover(state.incarnation, self.nodes, self.nodes + self.fronts)
        self._damage = ""
        """Why a newer snapshot could not be loaded; added to an error about an older one."""

    # Queries.

    @property
    def error(self) -> str:
        """The error that ended the run; empty without one, or before the end."""
        if self.outcome is None or not self.outcome.error:
            return ""
        return f"{self.outcome.error}: {self.outcome.text}"

    @property
    def start_snapshot(self) -> SnapshotRecord:
        """The snapshot from which a recovery begins; number 0 is the empty snapshot."""
        if self.state.snapshots:
            return self.state.snapshots[0]
        return SnapshotRecord(0, 0, (0,) * len(self.fronts))

    @property
    def leads(self) -> bool:
        """Whether the registry has the epoch of this master."""
        return self._writer.is_epoch_written

    @property
    def is_draining(self) -> bool:
        """Whether the run drains: it continues only until it can end."""
        # The suffix is empty unless the run is about to end.
        return self.phase is Phase.RUNNING and bool(self._draining.reason_suffix)

    def is_member(self, name: str) -> bool:
        """Return whether this is the name of a member."""
        return name in self.nodes or name in self.fronts

    @property
    def unreachable_s(self) -> dict[str, float]:
        """Unreachable member -> seconds for which the master has waited for the absent member, or
        for which the member has sent `Hello` without an answer to `Lead`."""
        if self.phase in (Phase.STOPPING, Phase.ENDED, Phase.SUPERSEDED):
            return {}
        unreachable = self.members.unresponsive_s
        if self.phase is Phase.GATHERING:
            unreachable |= dict.fromkeys(self._absent, self.now - self._gathering_since)
        return unreachable

    @property
    def waits_for(self) -> str:
        """Human-readable phase of the run, with the members for which the master waits."""
        if absent := self._absent:
            return f"{self.phase.value}; absent: {', '.join(absent)}"
        if self.phase is Phase.LOADING:
            not_ready = sorted({*self.nodes} - self._ready)
            return f"{self.phase.value}; not ready: {', '.join(not_ready)}"
        if self.phase is Phase.ASKING and self._takeover is not None:
            return f"{self.phase.value}; no answer from {', '.join(self._takeover.missing)}"
        phase = f"{self.phase.value}{self._draining.reason_suffix if self.is_draining else ''}"
        return phase + self.snapshots.waits_for

    @property
    def _absent(self) -> list[str]:
        return [name for name in self.nodes + self.fronts if name not in self.members]

    # Members and failures.

    def on_hello(self, name: str, message: Hello) -> None:
        """Process a `Hello`: a member is present, perhaps with a new process.

        The sender may also be a node of the next layout, or of an earlier one.
        """
        if not self.is_member(name):
            self._hello_of_nonmember(name, message)
            return
        restarted = self.members.hello(name, message.process, message.address, self.now)
        if self._takeover is not None:
            self._takeover.hello(name, message)
        if self.phase is Phase.STOPPED:
            self._shutdown.hello(name, message.process)
            self._send_outcome([name])
        elif self.phase in NO_MORE_DECISIONS:
            return
        elif restarted:
            reason = f"{name} has been restarted"
            self._recover(reason, backs_off=False)  # the supervisor paces restarts
        elif self.phase is Phase.GATHERING:
            self._leave_gathering()
        elif self._takeover is not None:
            self._continue_takeover(self._takeover, name)
        elif message.incarnation < self.state.incarnation:
            self._begin_incarnation_at(name)
        elif self.phase is Phase.LOADING and message.ready and name in self.nodes:
            self._ready.add(name)
            if len(self._ready) == len(self.nodes):
                self._start_fronts()

    def _hello_of_nonmember(self, name: str, message: Hello) -> None:
        """Process the hello of a node of the next layout, or stop a node of an earlier one."""
        if self.phase is Phase.STOPPED:
            self._send_outcome([name])
        elif name in self.rescaling.next_nodes:
            self.members.hello(name, message.process, message.address, self.now)
            self.rescaling.hello(name, message.process, self.state)
            self._send_rescaling_messages()
        elif self.leads:
            self._send([name], Stop(self._run_id, "", "this node is not in the current layout"))

    def on_alive(self, name: str, message: Alive) -> None:
        """Note a heartbeat of a process, which may be too busy for `Hello`."""
        if self.is_member(name) or name in self.rescaling.next_nodes:
            self.members.alive(name, message.process, self.now)

    def on_superseded(self, reason: object = "another master has taken over") -> None:
        """Stop making decisions: a later master exists, or a registry write failed for good."""
        if self.phase is not Phase.SUPERSEDED:
            fields = event_fields("registry-failed", reason=str(reason))
            log.warning("this master makes no more decisions: %s", reason, extra=fields)
            self.phase = Phase.SUPERSEDED

    def probe_members(self) -> None:
        """Ask all members whether they receive this master's messages.

        Do nothing unless this master leads a run without an outcome, or sends the outcome.
        """
        if self.phase is Phase.STOPPED or (self.leads and self.phase not in NO_MORE_DECISIONS):
            self._ask_to_follow(self.nodes + self.fronts)

    def step_down(self) -> None:
        """Stop making decisions, so that the next master in the queue leads."""
        absent = ", ".join(name for name in self.unreachable_s if name not in self.members)
        not_answering = ", ".join(name for name in self.unreachable_s if name in self.members)
        symptoms = [f"nothing from {absent}"] * bool(absent)
        symptoms += [f"heartbeats but no answers from {not_answering}"] * bool(not_answering)
        seconds = max(self.unreachable_s.values())
        log.warning(
            "for %.0f s this master has received %s. It steps down for the next one, which may "
            "reach these members: a network can fail in one direction, or between two hosts. Dead "
            "members that are not restarted look the same",
            *(seconds, ", and ".join(symptoms)),
            extra=event_fields(
                "stepped-down", absent=absent, not_answering=not_answering, seconds=seconds
            ),
        )
        self.phase = Phase.SUPERSEDED

    def note_progress(self, processed: int, delivered: int) -> None:
        """Note the progress of the run: the processed and the delivered frontier."""
        self._backoff.note_progress(processed, delivered, self.snapshots.committed)

    def on_message_lost(self, message: MessageLost) -> None:
        """Recover: a member lacks a message, or work makes no progress."""
        if message.incarnation == self.state.incarnation and self.phase in IN_PROGRESS:
            self._recover(message.reason)

    def on_failed(self, message: Failed) -> None:
        """End the run with the error of the flow that a member reported."""
        if message.incarnation == self.state.incarnation and self.phase not in NO_MORE_DECISIONS:
            because = message.error == SnapshotDamaged.__name__ and self._damage
            self.stop(message.error, message.text + (f" ({because})" if because else ""))

    # Time.

    def set_time(self, now: float) -> None:
        """Set the time (seconds, monotonic).

        If the time moves by more than half of the usual member timeout, this process was suspended:
        exclude the suspension from timeouts.
        """
        away_s, self.now = now - self.now, now
        if away_s > self._missing_after / 2:
            self.members.renew_after_suspension(now, away_s)
            self._gathering_since += away_s

    def tick(self, now: float) -> None:
        """Set the time; retry a failed write, detect absent members, end a back-off or the run."""
        self.set_time(now)
        self.jobs += self._writer.due(now)
        if self.phase is Phase.STOPPED:
            self._end_if_over()
        self.members.expire_silent(self.rescaling.next_nodes, now)
        silent = self.members.expire_silent(self.nodes + self.fronts, now)
        if silent and self.phase in (Phase.DECIDING, *IN_PROGRESS):
            waited = self.members.timeout_s(silent[0])
            self._recover(f"{', '.join(silent)} sent nothing for {waited:g} s")
        if self.phase is Phase.WAITING and now >= self._recover_at:
            self._recover("")

    @property
    def deadline(self) -> float:
        """When to call `tick` and `consider_snapshot` again (seconds, monotonic)."""
        latest = min(self.now + self._missing_after / 4, self._writer.retry_at)
        if self.phase is Phase.WAITING:
            return min(latest, self._recover_at)
        if self.phase is not Phase.RUNNING:
            return latest
        latest = min(latest, self.rescaling.deadline)
        due_at = self.snapshots.due_at
        if due_at is None or self.rescaling.blocks_snapshots:
            return latest
        return min(latest, max(due_at, self.now + 0.001))

    # Taking over.

    def _leave_gathering(self) -> None:
        """If all members are present, begin the run, take over, or recover."""
        if self._absent:
            return
        if not self._succeeds_earlier_master:
            self._recover("")
        elif self._takeover is not None and self._takeover.is_possible:
            self.phase = Phase.TAKING_OVER
            self._write(self.state.next())
        else:
            self._recover(RESTARTED, backs_off=False)

    def _continue_takeover(self, takeover: Takeover, name: str) -> None:
        """Continue the takeover after a member's hello."""
        if not takeover.is_possible:
            self._recover(RESTARTED, backs_off=False)
        elif self.phase is Phase.ASKING and name in takeover.missing:
            self._ask_to_follow([name])

    def _ask_to_follow(self, names: list[str]) -> None:
        self._send(names, Lead())
        self.members.expect_answers(names)

    def on_follows_master(self, name: str, message: FollowsMaster) -> None:
        """Note that a member follows this master; once all do, continue the incarnation."""
        self.members.mark_answered(name)
        incarnation, epoch = self.state.incarnation, self.state.epoch
        if self._takeover is None or (message.incarnation, message.epoch) != (incarnation, epoch):
            return
        self._takeover.answer(name, message)
        if self.phase is Phase.ASKING and not self._takeover.missing:
            self._finish_takeover(self._takeover)

    def _finish_takeover(self, takeover: Takeover) -> None:
        """End the takeover: all members now follow this master."""
        self._takeover, self._succeeds_earlier_master, self.taken_over = None, False, True
        self.phase = Phase.RUNNING
        log.info(
            "run incarnation %d: a new master has taken over, without a recovery",
            self.state.incarnation,
            extra=event_fields("taken-over", incarnation=self.state.incarnation),
        )
        self.snapshots.begin_from(self.start_snapshot, self.now)
        self.snapshots.give_up(takeover.requested_snapshot, takeover.unanswered_nodes)
        self.rescaling.on_takeover()
        self._send_rescaling_messages()
        if self.state.snapshots:
            self.out += self.snapshots.announce(self.state)

    # Recovery.

    def _recover(self, reason: str, backs_off: bool = True) -> None:
        """Begin a recovery now, or once all members are present and the back-off is over.

        `reason`: "" for the first start, and for a recovery that is already counted. `backs_off`:
        whether to wait first if recoveries make no progress.
        """
        self.snapshots.pending = None
        self.rescaling.on_incarnation_end()
        self._takeover, self._succeeds_earlier_master = None, False
        if reason:
            self._count_recovery(reason, self._backoff.next_pause_s() if backs_off else 0.0)
        if self._absent:
            if self.phase is not Phase.GATHERING:
                self.phase, self._gathering_since = Phase.GATHERING, self.now
            return
        if self.now < self._recover_at:
            self.phase = Phase.WAITING
            return
        self.phase = Phase.DECIDING
        if not self._writer.in_progress:
            self._write(self.state.next(incarnation=self.state.incarnation + 1))
        else:
            self._recover_after_write = True

    def _count_recovery(self, reason: str, pause: float) -> None:
        self.recoveries += 1
        self._is_recovering = True
        if self._down_since is None:  # otherwise the previous recovery failed
            self._down_since = self.now
        self._recover_at = max(self._recover_at, self.now + pause)
        fruitless = self._backoff.fruitless_recoveries
        wait = f"; no progress in {fruitless} recoveries, the next in {pause:g} s" if pause else ""
        fields = event_fields("recovery", reason=reason, number=self.recoveries, pause=pause)
        log.warning("recovering: %s%s", reason, wait, extra=fields)

    def on_job_done(self, job: IOJob, result: object) -> None:
        """Process a finished write of the registry; `result` is an exception if it failed."""
        if not self._writer.process_result(job, result, self.now) or self.phase is Phase.SUPERSEDED:
            return
        if isinstance(result, Exception):  # the registry does not hold this master's state
            self.on_superseded(result)
            return
        assert isinstance(job, WriteState)
        self.state = job.state
        if self.nodes != node_names(job.state.layout):
            self._rescaled()
        if self.phase is Phase.STOPPING:
            self._continue_stopping()
        elif self._recover_after_write:
            self._recover_after_write = False
            self._recover("")
        elif self.phase is Phase.DECIDING:
            self._load()
        elif self.phase is Phase.TAKING_OVER:
            self.phase = Phase.ASKING
            self._ask_to_follow(self.nodes + self.fronts)
        elif self.phase is Phase.RUNNING:
            self.out += self.snapshots.on_committed(self.state, self.now)

    def _load(self) -> None:
        self.phase = Phase.LOADING
        self._ready.clear()
        self._draining = Draining(self.fronts, self.policy)
        if self._down_since is None:
            self._down_since = self.now
        incarnation, start = self.state.incarnation, self.start_snapshot
        name = snapshot_name(start.number, start.time)
        action = f"load {name}" if start.number else "start without a snapshot"
        fields = event_fields(
            "load", incarnation=incarnation, snapshot=start.number, time=start.time
        )
        log.info("run incarnation %d: nodes %s", incarnation, action, extra=fields)
        for node in self.nodes:
            self._begin_incarnation_at(node)

    def _start_fronts(self) -> None:
        self.phase = Phase.RUNNING
        self.snapshots.begin_from(self.start_snapshot, self.now)
        took = self.now - (self.now if self._down_since is None else self._down_since)
        if self._is_recovering:
            self.recovery_durations.add(took)
        self._down_since, self._is_recovering = None, False
        incarnation = self.state.incarnation
        fields = event_fields("running", incarnation=incarnation, seconds=took)
        text = "run incarnation %d: all nodes are ready after %.1f s"
        log.info(text, incarnation, took, extra=fields)
        for front in self.fronts:
            self._begin_incarnation_at(front)

    def _begin_incarnation_at(self, name: str) -> None:
        """Send `Recover` to a node, or `Start` to a front, perhaps again: the first may be lost."""
        state, start = self.state, self.start_snapshot
        addresses = self.members.addresses(self.nodes + self.fronts)
        if name in self.nodes and self.phase in (Phase.LOADING, Phase.RUNNING):
            number = start.number
            if self.policy.recovers_locally:  # the node's newest part has at least this number
                number = start.parts[self.nodes.index(name)] if start.parts else 0
            recover = Recover(
                state.incarnation,
                number,
                start.incarnation,
                start.time,
                addresses,
                int(state.same_code(start)),
                state.layout,
                start.event_times,
                start.late,
            )
            self._send([name], recover)
        elif name in self.fronts and self.phase is Phase.RUNNING:
            offset = start.offsets[self.fronts.index(name)] if self.policy.replay else -1
            self._send([name], Start(state.incarnation, offset, addresses, state.layout))

    def on_unloadable(self, sender: str, message: Unloadable) -> None:
        """Fall back to the previous snapshot, or end the run: a node cannot load a snapshot."""
        if message.incarnation != self.state.incarnation or self.phase is not Phase.LOADING:
            return
        reason = f"{sender} cannot load snapshot {message.number}: {message.reason}"
        older = tuple(s for s in self.state.snapshots if s.number < message.number)
        has_no_fallback = not message.number or (self.state.base and not older)
        if self.policy.outputs_wait_for_snapshots or has_no_fallback:
            reasons = "; ".join(filter(None, (reason, self._damage)))
            self.stop("SnapshotDamaged", f"{reasons}. {ADVICE}")
            return
        fields = event_fields("snapshot-damaged", reason=reason, snapshot=message.number)
        log.warning("%s; the previous snapshot is used", reason, extra=fields)
        self._damage = reason
        self.phase = Phase.DECIDING
        self._write(self.state.next(incarnation=self.state.incarnation + 1, snapshots=older))

    # Rescaling.

    def rescale(self, nodes: int, first_number: int = 0) -> None:
        """Request a number of nodes; `first_number`: `Rescale.first`. May be repeated."""
        if self.phase not in NO_MORE_DECISIONS and not self.is_draining:
            self.rescaling.request(nodes, self.state.layout, first_number)
            self._send_rescaling_messages()

    def consider_rescaling(self, delivered: int, last_sent: int | None) -> None:
        """Advance the rescaling; `last_sent`: see `ReportedProgress.last_sent`."""
        if self.phase is not Phase.RUNNING:
            return
        if self.is_draining:
            self.rescaling.give_up("the run is about to end")
        last_snapshot = self.rescaling.advance(self.state, delivered, last_sent, self.now)
        self._send_rescaling_messages()
        if last_snapshot is not None:
            self.phase = Phase.DECIDING
            changes = {
                "incarnation": self.state.incarnation + 1,
                "layout": self.rescaling.next_layout,
                "snapshots": (last_snapshot,),
                "base": last_snapshot.number,
            }
            self._write(self.state.next(**changes))

    def _rescaled(self) -> None:
        """Adopt the new layout, which the registry now has."""
        self.members.forget(self.nodes)
        self.nodes[:] = node_names(self.state.layout)
        self.members.renew(self.nodes, self.now)
        self.rescaling.forget()
        self._shutdown = ShutdownWait(self.nodes + self.fronts, self._missing_after)
        names, time = ", ".join(self.nodes), self.start_snapshot.time
        fields = event_fields("rescaled", nodes=len(self.nodes), time=time)
        text = "rescaling: %s process the records from %s on"
        log.info(text, names, format_time(time), extra=fields)

    def _send_rescaling_messages(self) -> None:
        self.out += self.rescaling.out
        self.rescaling.out = []

    # Snapshots.

    def consider_snapshot(self, delivered: int) -> None:
        """Begin a snapshot if one is due; see `Snapshots.consider`."""
        if self.phase is Phase.RUNNING and not self.rescaling.blocks_snapshots:
            self.out += self.snapshots.consider(delivered, self.now)

    def on_prepared(self, sender: str, message: Prepared) -> None:
        """Note that a part of the snapshot is durable; after the last part, write the commit."""
        self.snapshots.prepared(sender, message)
        self._write_complete_snapshot()

    def on_prepare_failed(self, sender: str, message: PrepareFailed) -> None:
        """Note that a node could not write its part: the snapshot will be abandoned."""
        self.snapshots.prepare_failed(sender, message)
        self._write_complete_snapshot()

    def _write_complete_snapshot(self) -> None:
        if self.phase is not Phase.RUNNING or self._writer.in_progress:
            return
        record = self.snapshots.record_if_complete(self.state.incarnation, self.now)
        if record is not None:
            self._write(self.state.next(snapshots=(record, *self.state.snapshots[:1])))

    # The end of the run.

    def on_end_of_input(self, name: str, message: EndOfInput) -> None:
        """Drain the run: a front has reported the time below which its records end.

        Once the end time of the run is known, send `Drain` to all fronts.
        """
        self._draining.on_end_of_input(name, message.time, bool(message.live), bool(message.ended))
        end_time = self._draining.end_time
        if end_time is not None and end_time < INFINITY:
            self._send(self.fronts, Drain(end_time))

    def consider_end(self, processed: int, delivered: int, reached: int) -> None:
        """If the run drains or its inputs have ended, make the last snapshot due. End the run once
        the consumer has all outputs and this snapshot is committed.

        `reached`: see `Tracker.reached`.
        """
        if processed >= INFINITY:
            self._draining.on_inputs_ended(reached)
        if self._draining.request_last_snapshot(processed, delivered, self.snapshots.number):
            self.snapshots.make_due(self.now)
        if self._draining.is_over(delivered, self.start_snapshot.number, self.start_snapshot.time):
            self.stop(text="" if self._draining.has_ended else ENDED_ON_REQUEST)

    def stop(self, error: str = "", text: str = "") -> None:
        """Decide to end the run. Members receive the outcome after the registry has it."""
        self.phase = Phase.STOPPING
        self.rescaling.on_incarnation_end()
        self.snapshots.pending = None
        self.outcome = RunOutcome(self._run_id, error, text)
        if not self._writer.in_progress:  # otherwise `_continue_stopping` writes the outcome later
            self._write(self.state.next(outcome=self.outcome))

    def _continue_stopping(self) -> None:
        """Process a finished write after `stop`: if it lacks the outcome, write the outcome now."""
        if self.state.outcome is None:
            self._write(self.state.next(outcome=self.outcome))
            return
        self.phase = Phase.STOPPED
        self._send_outcome(self.nodes + self.fronts)

    def on_goodbye(self, name: str, message: Goodbye) -> None:
        """Note that a member knows the outcome."""
        if self.phase is Phase.STOPPED:
            self._shutdown.goodbye(name, message.process)
            self._end_if_over()

    def _end_if_over(self) -> None:
        if self._shutdown.is_over(self.now):
            self.phase = Phase.ENDED

    # Writes and messages.

    def _write(self, state: ClusterState) -> None:
        self.jobs.append(self._writer.begin(state))

    def _send(self, names: list[str], message: Message) -> None:
        self.out += [(name, message) for name in names]

    def _send_outcome(self, names: list[str]) -> None:
        assert self.outcome is not None
        self._send(names, Stop(self.outcome.run, self.outcome.error, self.outcome.text))
