"""The node: executes every operator of the flow for its key groups, and holds one barrier.

Takes frames and markers (fronts, nodes), `Acknowledge` (nodes), `Promise` (fronts), `Progress`,
`Prepare`, `Committed` (master), `BundleStored` (consumer), and what begins an incarnation
(`recovery`). Gives frames and markers, an `Acknowledge` for what was worked off, `Prepared`,
bundles, and what every member gives.

A turn works off everything that has come, stage by stage (`stages`); what it made for other nodes
leaves as soon as its stage is done, and with it the acknowledgement of the stage (strong
productions: as soon as it is durable). Outputs leave as soon as the last stage is done; only then
comes what nobody waits for. What the policy decides is decided where the parts are made (`parts`).
"""

from __future__ import annotations

from collections.abc import Callable

from driftline.deploy.node.parts import Parts
from driftline.deploy.node.recovery import Recovering
from driftline.deploy.node.snapshotter import Snapshotter
from driftline.deploy.node.stages import Stages
from driftline.deploy.work.assembly import Assembly, Post
from driftline.deploy.work.leaving import arrived_block
from driftline.deploy.work.pace import Pace
from driftline.engine.errors import DriftlineError, MalformedMessage
from driftline.engine.flow.plan import Plan
from driftline.engine.labels import INFINITY
from driftline.engine.policy import Policy
from driftline.engine.snapshots.jobs import CommitSnapshot
from driftline.engine.wire.messages import (
    Acknowledge,
    AskPromise,
    AskReport,
    BundleStored,
    Committed,
    Failed,
    Frame,
    Marker,
    Message,
    Prepare,
    Progress,
    Promise,
    Report,
)
from driftline.engine.wire.party import Job

PUT_OFF = 2
"""How many turns in a row what is not urgent waits for what is."""

ROWS_AT_LEISURE, ROWS_UNDER_LOAD = 256, 16384
"""Rows of state that are then encoded at a time."""


class Node(Recovering):
    """One node, with whatever policy."""

    def __init__(
        self,
        index: int,
        nodes: int,
        plan: Plan,
        policy: Policy,
        new_id: Callable[[], int],
        *,
        process: str = "",
        address: str = "",
        dead_letters: bool = False,
        run: str = "",
        pace: Pace | None = None,
    ) -> None:
        parts = Parts(plan, policy, index, nodes, new_id, dead_letters)
        super().__init__(parts, process, address, run, pace or Pace(plan))
        self.index = index
        self.plan = plan

    def _set_up(self, assembly: Assembly, start: int) -> None:
        super()._set_up(assembly, start)
        self._tracking = self._parts.tracking(start)
        self._snapshots = Snapshotter(assembly, self.incarnation)
        self._stages = Stages(
            self._parts, assembly, self._tracking, self._snapshots, self.pace, self.send
        )
        self._begun = False
        """Whether the master has begun, so that all nodes are in this incarnation."""
        self._stage = 0
        """Where the turn goes on; behind the last stage comes what nobody waits for."""
        self._moved = False
        """Whether frontiers have moved since the last turn ended."""
        self._final = 0
        """Elements below this time are final; that is put into effect when there is time for it."""
        self._put_off = 0
        """Turns in a row in which what is not urgent has waited."""

    @property
    def steps(self) -> int:
        return self.pace.steps

    @property
    def waits_for_disk(self) -> bool:
        return self.assembly.storing

    @property
    def doing(self) -> str:
        return self.pace.doing()

    # What comes in.

    def handle(self, sender: str, message: Message) -> None:
        if isinstance(message, Frame):
            if not 0 <= message.port < len(self.plan.ports):
                raise MalformedMessage(f"a frame for port {message.port}, which the flow has not")
            block = arrived_block(message)
            if message.cells or message.covered:  # first: it may be refused
                self._tracking.acknowledge(message.cells, message.covered)
            self._stages.admit(sender, message.feeder, block)
        elif isinstance(message, Acknowledge):
            self._tracking.acknowledge(message.cells, message.covered)
        elif isinstance(message, BundleStored):
            self._delivery.stored(message)
        elif isinstance(message, Promise):
            self._tracking.promise(message)
        elif isinstance(message, Progress):
            self._begun = True
            self._final = message.delivered
            self.pace.moved_to(message.processed)
            self._send_all(self.assembly.progress(message.processed))
        elif isinstance(message, Marker):
            self._stages.mark(sender, message)
        elif isinstance(message, Prepare):
            self._send_all(self._snapshots.prepare(message.number, message.time))
        elif isinstance(message, Committed):
            self.jobs.append(self.assembly.commit(message.number, message.before))
        elif isinstance(message, Failed):  # the consumer cannot go on
            if message.incarnation == self.incarnation:
                self.report(message)
        elif isinstance(message, AskReport):
            self.addresses[sender] = message.address
            own = {"frames": self._stages.frames, "malformed": self.malformed}
            self.send(sender, Report(tuple({**self.assembly.figures(), **own}.items())))
        else:
            super().handle(sender, message)

    def tick(self, now: float) -> float:
        if self.running and now >= self._tracking.tell_by:
            self._tell_all()
        return super().tick(now)

    def repeat(self) -> None:
        super().repeat()
        if self.running:
            if self._begun:  # peers without a tracker, too: a marker that they miss was lost
                self._send_all(self._stages.peers.nothing_new())
            self._tell_all()

    def done(self, job: Job, result: object) -> None:
        if isinstance(job, CommitSnapshot) and result is True:
            self.jobs.append(job)  # there is more to do
        elif (answer := self._snapshots.stored(job, result)) is not None:
            self._send_all(self.assembly.stored(answer))
        else:
            super().done(job, result)

    # A turn.

    def turn(self) -> bool:
        self.pace.begin()
        if self.stopped:
            return False
        if not self.running:
            return self._restore()
        resumed = self._stage > 0  # then what has come meanwhile is for the next turn
        try:
            return self._work() or self._end_turn() or resumed
        except DriftlineError as error:
            self._fail(error)
            return False

    def _work(self) -> bool:
        """Work off what waits. Returns whether something has to leave before going on."""
        stages, tracking, last = self._stages, self._tracking, self.plan.stages
        if self._stage == 0 and tracking.news and stages.waiting.many():
            self._advance()
        while self._stage < last:
            stage, self._stage = self._stage, self._stage + 1
            stages.work_off(stage)
            if stages.peers.waiting:
                self._acknowledge()
            if self.outbox and (stages.own or stages.waiting.any(self._stage)):
                return True  # others can work meanwhile
        if self._stage > last:
            return False
        self._stage += 1
        if tracking.news or stages.applying.due:
            self._advance()
        return self._send_bundle()

    def _end_turn(self) -> bool:
        """Do what nobody waits for. Returns whether there is more to do without any new input."""
        stages, tracking, barrier = self._stages, self._tracking, self.assembly.barrier
        self._stage = 0
        rest, stages.rest = stages.rest, False
        if number := self.assembly.end_turn(tracking.acks, unfinished=rest):
            self._snapshots.begin(number, INFINITY)
        if tracking.acks:
            self._acknowledge()
            self._advance()
            self._send_bundle()
        more, job = self._snapshots.step()
        if job is not None:
            self.jobs.append(job)
        more |= rest or stages.applying.due
        more |= bool(tracking.acks) or (self._moved and stages.waiting.any())
        self._moved = False
        tracking.deliver(barrier.delivered, barrier.stored_last, self.now)
        self.tick_by = min(self.tick_by, tracking.tell_by)
        if self.outbox and self._put_off < PUT_OFF:
            self._put_off += 1
            return True  # let it leave; there may be something to do meanwhile
        self._put_off = 0
        if self.outbox:
            self._tidy(ROWS_UNDER_LOAD)
            return True
        return more or barrier.encode_ahead() or self._tidy(ROWS_AT_LEISURE)

    def _advance(self) -> None:
        """Put into effect what is known of the frontiers."""
        stages, tracking = self._stages, self._tracking
        if self.index == 0:  # also when nothing moves: an idle front may be what holds it up
            for front, time in tracking.tracker.to_ask():
                self.send(f"front-{front}", AskPromise(time))
        if tracking.moved():
            self._moved = stages.applying.due = True
            stages.waiting.settle(tracking.frontiers[-1])
        if stages.applying.due:
            stages.release()
        self.assembly.barrier.advance(tracking.final_outputs(stages.waiting.first(-1)))

    def _tidy(self, rows: int) -> bool:
        """Do what is not urgent. Returns whether there was anything."""
        final, self._final = self._final, 0
        self.assembly.settle(final)
        return self.assembly.encode_early(rows)

    # What leaves, beside frames.

    def _send_bundle(self) -> bool:
        """Let outputs leave, if any may. Returns whether some have."""
        bundle = self._delivery.bundle(self.now)
        if bundle is not None:
            self.send("consumer", bundle)
        return bundle is not None

    def _acknowledge(self) -> None:
        """Tell peers at once what their outputs wait for."""
        self._send_all(self._stages.peers.acknowledge(*self._tracking.end_turn(self.now)))

    def _tell_all(self) -> None:
        """Tell peers and the master all that they do not know."""
        self._send_all(self._stages.peers.acknowledge(*self._tracking.for_peers()))
        self.send("master", self._tracking.for_master())

    def _send_all(self, post: Post) -> None:
        for to, message in post:
            self.send(to, message)

    def validate(self) -> None:
        """Assert the invariants of everything in the node."""
        self.assembly.validate()
