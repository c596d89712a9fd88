"""The node: runs all operators of the flow for its key groups, and has one barrier.

Takes: frames and markers (fronts, nodes), `Acknowledge`, `Delivered` (nodes), `Promise` (fronts),
`Progress`, `Prepare`, `Committed` (master), `BundleStored` (consumer), and the messages that begin
an incarnation (`recovery`). Gives: frames and markers, an `Acknowledge` of frames worked off,
`Prepared`, `Reached` and `Delivered` (label order), bundles, and the messages that every member
gives. Invariant: frames leave before, or with, the acknowledgement of the frames that they were
made of.

A turn works off all blocks that have come, stage by stage (`stages`). The frames of a stage leave
as soon as the stage is done, with its acknowledgement (strong productions: as soon as they are
durable). Outputs leave as soon as the last stage is done. Only then follows work that no output
waits for: snapshots, settling, encoding. While the consumer is slow, turns work off no blocks
(`brake`). `components` alone depends on the policy.
"""

from __future__ import annotations

from collections.abc import Callable

from driftline.deploy.node.brake import WAITING_BYTES, Brake
from driftline.deploy.node.components import Components
from driftline.deploy.node.giving import Giving
from driftline.deploy.node.masterless import Masterless
from driftline.deploy.node.recovery import CONSUMER, Recovering
from driftline.deploy.node.snapshotter import Snapshotter
from driftline.deploy.node.stages import Stages
from driftline.deploy.work.assembly import Assembly, Post
from driftline.deploy.work.leaving import arrived_block
from driftline.deploy.work.pace import Pace
from driftline.engine.errors import DriftlineError, MalformedMessage
from driftline.engine.flow.plan import Plan
from driftline.engine.labels import INFINITY
from driftline.engine.policy import Policy
from driftline.engine.snapshots.jobs import CommitSnapshot, ListParts, ReadSlice
from driftline.engine.wire.messages import (
    Acknowledge,
    AskParts,
    AskPromise,
    AskSlice,
    AskSnapshot,
    BundleStored,
    Committed,
    Delivered,
    Failed,
    Frame,
    Marker,
    Message,
    Prepare,
    Progress,
    Promise,
)
from driftline.engine.wire.party import Job

PUT_OFF = 2
"""The number of turns in a row that may put off settling and encoding, as messages leave first."""

ROWS_AT_LEISURE, ROWS_UNDER_LOAD = 256, 16384
"""Rows of each state to encode in one turn: with no message to send, and after `PUT_OFF` turns."""


BUNDLES_WAITING = 8
"""So many bundles fit into the bytes of outputs that may wait for the consumer."""


class Node(Recovering):
    """Node `index`, with any policy; the first layout has `nodes` nodes, and the master tells of
    later ones.

    `process`, `address`, `run`: see `Member`; `dead_letters`, `tells`: see `Barrier`;
    `waiting_bytes`: see `Brake`.
    """

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
        waiting_bytes: int = WAITING_BYTES,
        tells: bool = False,
    ) -> None:
        self._waiting_bytes = waiting_bytes
        layout = tuple(range(nodes)) if index < nodes else (index,)
        components = Components(
            plan,
            policy,
            index,
            layout,
            new_id,
            dead_letters,
            waiting_bytes // BUNDLES_WAITING,
            tells,
        )
        super().__init__(components, process, address, run, pace or Pace(plan))
        self.index = index
        self.plan = plan
        self._giving = Giving()
        self.more_figures: Callable[[], dict[str, int]] = dict
        """Gives figures for a `Report` that the node does not know: those of its driver."""

    def _set_up(self, assembly: Assembly, start: int) -> None:
        super()._set_up(assembly, start)
        self._tracking = self._components.tracking(start)
        self._snapshots = Snapshotter(assembly, self.incarnation)
        self._stages = Stages(
            self._components, assembly, self._tracking, self._snapshots, self.pace, self.send
        )
        self.brake = Brake(self.name, self._waiting_bytes)
        self._masterless = Masterless(self._components.others, start)
        self._begun = False
        """Whether the master has sent its progress: then all nodes are in this incarnation."""
        self._stage = 0
        """The stage to go on with; behind the last stage, the end of the turn."""
        self._moved = False
        """Whether frontiers have moved since the end of the last turn."""
        self._final = 0
        """Elements below this time are delivered, and are settled when there is time."""
        self._put_off = 0
        """The number of turns in a row that have put off settling and encoding."""

    @property
    def steps(self) -> int:
        return self.pace.steps

    @property
    def holds_others_up(self) -> bool:
        return self.assembly.storing or self.brake.on

    @property
    def snapshots_asked(self) -> tuple[int, int]:
        return self._snapshots.asked, self._snapshots.answered

    @property
    def doing(self) -> str:
        return self.pace.doing()

    def follow(self) -> None:
        if self.running:  # before the answer: the new master goes on once it has all answers
            self._tell_all()
        super().follow()

    def figures(self) -> dict[str, int]:
        """The counters of this incarnation, by name. May be called by another thread."""
        own = {"frames": self._stages.frames, "malformed": self.malformed}
        return {**self.assembly.figures(), **own, **self.more_figures()}

    def gauges(self) -> dict[str, float]:
        """What waits in this node, and how far it is, by name. May be called by another thread."""
        return {
            "waiting_bytes": self.barrier.waiting_bytes,
            "unsaved_bytes": self._unsaved_bytes(),
            "snapshot_bytes": self._snapshots.last_bytes,
            "written_bytes": self._snapshots.stored_bytes,
            "restored": 1.0 if self._restored else self._restoring.percent / 100,
        }

    def told(self) -> dict[str, int]:
        waits = {"held_back": int(self.brake.on), "waiting_bytes": self.barrier.waiting_bytes}
        waits |= {"unsaved_bytes": self._unsaved_bytes(), "delivered": self._masterless.delivered}
        return self.figures() | waits

    # Messages and jobs.

    def handle(self, sender: str, message: Message) -> None:
        if isinstance(message, Frame):
            if not 0 <= message.port < len(self.plan.ports):
                raise MalformedMessage(f"a frame for port {message.port}, which does not exist")
            block = arrived_block(message)
            if message.cells or message.covered:  # first, as it may be malformed
                self._tracking.acknowledge(message.cells, message.covered)
            self._stages.admit(sender, message.feeder, block)
        elif isinstance(message, Acknowledge):
            self._tracking.acknowledge(message.cells, message.covered)
        elif isinstance(message, BundleStored):
            self._delivery.stored(message)
            self.obstacles.pop(CONSUMER, None)
        elif isinstance(message, Promise):
            self._tracking.promise(message)
        elif isinstance(message, Progress):
            self._begun = True
            self._final = message.delivered
            self._masterless.progress(message.delivered, self.now)
            self.pace.moved_to(message.processed)
            self._send_all(self.assembly.progress(message.processed))
        elif isinstance(message, Marker):
            self._stages.mark(sender, message)
        elif isinstance(message, Delivered):
            self._masterless.hear(sender, message.time)
        elif isinstance(message, Prepare):
            if message.time < self._masterless.settled:
                self._send_all(self._snapshots.refuse(message.number, message.time))
            else:
                self._send_all(self._snapshots.prepare(message.number, message.time))
        elif isinstance(message, Committed):
            joining = self.assembly.commit(message.number, message.before)
            if not self._giving.is_read(self.now):  # else a later commit joins these parts, too
                self.jobs.append(joining)
        elif isinstance(message, AskParts | AskSlice):
            self.addresses[sender] = message.address
            self.jobs.append(self._giving.ask(sender, message, self.now))
        elif isinstance(message, Failed):  # from the consumer, which cannot go on
            if message.incarnation == self.incarnation:
                self.report(message)
        else:
            super().handle(sender, message)

    def tick(self, now: float) -> float:
        if self.running and now >= self._tracking.tell_by:
            self._tell_all()
        if self.running and now >= self._masterless.tell_by:
            self._tell_delivered()
        return super().tick(now)

    def repeat(self) -> None:
        super().repeat()
        if self.running:
            if self._begun:  # in every policy: a lost marker, too, becomes a gap
                self._send_all(self._stages.peers.nothing_new())
            self._tell_all()
            if self._masterless.silent(self.now):
                self._tell_delivered()
            if 2 * self._unsaved_bytes() > self.brake.waiting_bytes:
                self.send("master", AskSnapshot())

    def done(self, job: Job, result: object) -> None:
        if isinstance(job, CommitSnapshot) and result is True:
            if not self._giving.is_read(self.now):  # else a later commit goes on
                self.jobs.append(job)  # there is more to merge
        elif isinstance(job, ListParts | ReadSlice):
            if (part := self._giving.answer(job, result)) is not None:
                self.send(job.to, part)
        elif (answer := self._snapshots.stored(job, result)) is not None:
            self.note(job, result)
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
        resumed = self._stage > 0  # then blocks that have come meanwhile need another turn
        try:
            return self._work() or self._end_turn() or resumed
        except DriftlineError as error:
            self._fail(error)
            return False

    def _work(self) -> bool:
        """Work off the stages. Returns whether messages should leave before the turn goes on."""
        stages, tracking, last = self._stages, self._tracking, self.plan.stages
        if self._stage == 0:
            if tracking.news and stages.waiting.many():
                self._advance()
            unsaved = self._unsaved_bytes() if self.assembly.waits_for_snapshot else 0
            if self.brake.look(self.barrier.waiting_bytes, unsaved, self.now):
                self._stage = last
            else:
                stages.unfinished = False
        while self._stage < last:
            stage, self._stage = self._stage, self._stage + 1
            stages.work_off(stage)
            if stages.peers.waiting:
                self._acknowledge()
            if self.outbox and (stages.own_blocks or stages.waiting.any(self._stage)):
                return True  # other nodes can begin with these frames
        if self._stage > last:
            return False
        self._stage += 1
        if tracking.news or stages.applying.due:
            self._advance()
        return self._send_bundle()

    def _end_turn(self) -> bool:
        """Do the work that no output waits for. Returns whether the node needs another turn."""
        stages, tracking, barrier = self._stages, self._tracking, self.assembly.barrier
        self._stage = 0
        if number := self.assembly.end_turn(tracking.acks, unfinished=stages.unfinished):
            self._snapshots.begin(number, INFINITY)
        if tracking.acks:
            self._acknowledge()
            self._advance()
            self._send_bundle()
        more, job = self._snapshots.step()
        if job is not None:
            self.jobs.append(job)
        more |= bool(tracking.acks) or stages.applying.due
        if not self.brake.on:
            more |= stages.unfinished or (self._moved and stages.waiting.any())
        self._moved = False
        tracking.deliver(barrier.delivered, barrier.stored_last, self.now)
        # Not INFINITY: no snapshot is later than what fronts have reached.
        passed = min(tracking.frontiers[-1], tracking.tracker.reached)
        self._masterless.deliver(min(barrier.delivered, passed), self.now)
        self.tick_by = min(self.tick_by, tracking.tell_by, self._masterless.tell_by)
        if self.outbox and self._put_off < PUT_OFF:
            self._put_off += 1
            return True  # let the messages leave first
        self._put_off = 0
        if self.outbox:
            self._tidy(ROWS_UNDER_LOAD)
            return True
        return more or barrier.encode_ahead() or self._tidy(ROWS_AT_LEISURE)

    def _advance(self) -> None:
        """Act on new frontiers: settle roots, release elements at gates, release outputs."""
        stages, tracking = self._stages, self._tracking
        if (
            self._components.place == 0
        ):  # even if no frontier moves: they may all wait for an idle front
            for front, time in tracking.tracker.to_ask():
                self.send(f"front-{front}", AskPromise(time))
        if tracking.moved(self.now):
            self._moved = stages.applying.due = True
            stages.waiting.settle(tracking.frontiers[-1])
        if stages.applying.due:
            stages.release()
        self.assembly.barrier.advance(tracking.final_outputs(stages.waiting.first(-1)))

    def _tidy(self, rows: int) -> bool:
        """Settle final elements, and encode rows. Returns whether any were encoded."""
        final, self._final = self._final, 0
        self.assembly.settle(max(final, self._masterless.to_settle(self.now)))
        return self.assembly.encode_early(rows)

    # Messages to send, except frames.

    def _send_bundle(self) -> bool:
        """Send the outputs that may leave. Returns whether there were any."""
        bundle = self._delivery.bundle(self.now)
        if bundle is not None:
            self.send("consumer", bundle)
        elif (passed := self._delivery.passed()) is not None:
            self.send("consumer", passed)
        return bundle is not None

    def _unsaved_bytes(self) -> int:
        return self.assembly.unsaved_bytes + self._snapshots.unstored_bytes

    def _acknowledge(self) -> None:
        """Acknowledge the work of the turn to peers, if outputs of theirs wait for it."""
        self._send_all(self._stages.peers.acknowledge(*self._tracking.end_turn(self.now)))

    def _tell_all(self) -> None:
        """Acknowledge all work that peers and the master have not heard of."""
        self._send_all(self._stages.peers.acknowledge(*self._tracking.for_peers()))
        self.send("master", self._tracking.for_master(self.barrier.left))

    def _tell_delivered(self) -> None:
        """Tell the fronts and the other nodes how far this node's outputs are delivered."""
        told = Delivered(self._masterless.tell())
        fronts = (f"front-{front}" for front in range(self.plan.fronts))
        self._send_all([(to, told) for to in (*self._components.others, *fronts)])

    def _send_all(self, post: Post) -> None:
        for to, message in post:
            self.send(to, message)

    def validate(self) -> None:
        """Assert the invariants of the assembly."""
        self.assembly.validate()
