"""The node: executes every operator of the flow for its key groups, and holds one barrier.

Takes frames and markers (fronts, nodes), `Acknowledge` (nodes), `Promise` (fronts), `Progress`,
`Prepare`, `Committed`, `Recover` (master), `LastBundle`, `BundleStored` (consumer), and what every
member takes. Gives frames and markers, an `Acknowledge` for what was worked off, `Prepared`,
bundles, and what every member gives.

A turn works off everything that has come, stage by stage and within a stage in label order, so
that few elements come late; what it made for other nodes leaves as soon as its stage is done, and
with it the acknowledgement of the stage (strong productions: as soon as it is durable). Outputs
leave as soon as the last stage is done; only then comes what nobody waits for.

Invariant: an id is acknowledged in the same batch as the ids of all frames sent because of it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from driftline.barrier.barrier import Barrier
from driftline.deploy.node.delivery import Delivery
from driftline.deploy.node.peers import Peers
from driftline.deploy.node.restoring import Restoring
from driftline.deploy.node.snapshotter import Snapshotter
from driftline.deploy.parties.member import Member
from driftline.deploy.work.applying import Applying
from driftline.deploy.work.assembly import Assembly, Post, assemble
from driftline.deploy.work.blocks import Block, Waiting
from driftline.deploy.work.leaving import arrived_block, to_frame
from driftline.deploy.work.pace import Pace
from driftline.deploy.work.tracking import Tracking
from driftline.engine.errors import DriftlineError, MalformedMessage
from driftline.engine.flow.plan import Plan, Port
from driftline.engine.keygroups import owned_by
from driftline.engine.labels import INFINITY
from driftline.engine.policy import Policy
from driftline.engine.snapshots.jobs import CommitSnapshot, LoadSnapshot
from driftline.engine.wire.messages import (
    Acknowledge,
    AskPromise,
    AskReport,
    BundleStored,
    Committed,
    Failed,
    Frame,
    LastBundle,
    Marker,
    Message,
    Prepare,
    Progress,
    Promise,
    Recover,
    Report,
)
from driftline.engine.wire.party import Job

PUT_OFF = 2
"""How many turns in a row what is not urgent waits for what is."""

ROWS_AT_LEISURE, ROWS_UNDER_LOAD = 256, 16384
"""Rows of state that are then encoded at a time."""


class Node(Member):
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
        super().__init__(f"node-{index}", process, address, run)
        self.index, self.nodes = index, nodes
        self.plan = plan
        self._ports = [plan.of_stage(stage) for stage in range(plan.stages)]
        self.policy = policy
        self.new_id = new_id
        self.frames = 0
        """Frames made so far."""
        self.pace = pace or Pace(plan)
        self.running = False
        self.range = owned_by(index, nodes, plan.flow.groups)
        self._assemble = partial(
            assemble, plan, policy, index, nodes, new_id, dead_letters=dead_letters
        )
        self.assembly: Assembly = self._assemble()
        self._begin(LoadSnapshot(0))

    def _begin(self, load: LoadSnapshot, start: int = 0) -> None:
        """Drop everything volatile."""
        self.running = False
        self.ready = False
        self._begun = False
        """Whether the master has begun, so that all nodes are in this incarnation."""
        self._restoring = Restoring(load, start, self._assemble)
        self._delivery: Delivery | None = None
        """With the consumer, once the barrier is loaded."""
        self._waiting = Waiting(self.plan, hold_back=self.policy.ordering == "speculative")
        self._tracking = Tracking(self.plan, self.nodes, start, self.policy)
        self._stage = 0
        """Where the turn goes on; behind the last stage comes what nobody waits for."""
        self._moved = False
        """Whether frontiers have moved since the last turn ended."""
        self._own: list[tuple[int, Block]] = []
        """(feeder, elements) of what does not leave the node."""
        self._peers = Peers(f"node-{node}" for node in range(self.nodes) if node != self.index)
        self._applying = Applying(self.assembly, self.pace)
        self._rest = False
        """Whether there was no time for some of what waited."""
        self._final = 0
        """Elements below this time are final; that is put into effect when there is time for it."""
        self._put_off = 0
        self._snapshots = Snapshotter(self.assembly, self.incarnation)

    @property
    def steps(self) -> int:
        return self.pace.steps

    @property
    def waits_for_disk(self) -> bool:
        return self.assembly.storing

    @property
    def doing(self) -> str:
        return self.pace.doing()

    @property
    def barrier(self) -> Barrier:
        return self.assembly.barrier

    # What comes in.

    def handle(self, sender: str, message: Message) -> None:
        if isinstance(message, Frame):
            if not 0 <= message.port < len(self.plan.ports):
                raise MalformedMessage(f"a frame for port {message.port}, which the flow has not")
            block = arrived_block(message)
            if message.cells or message.covered:  # first: it may be refused
                self._tracking.acknowledge(message.cells, message.covered)
            self._admit(sender, message.feeder, block)
        elif isinstance(message, Acknowledge):
            self._tracking.acknowledge(message.cells, message.covered)
        elif isinstance(message, BundleStored):
            if self._delivery is not None:
                self._delivery.stored(message)
        elif isinstance(message, Promise):
            self._tracking.promise(message)
        elif isinstance(message, Progress):
            self._begun = True
            self._final = message.delivered
            self.pace.moved_to(message.processed)
            if not self.policy.ordered:
                self.barrier.advance(message.processed)
            self._send_all(self.assembly.progress(message.processed))
        elif isinstance(message, Marker):
            if message.port not in self.assembly.alignments:
                raise MalformedMessage(f"a marker for port {message.port}, which has no epochs")
            self.assembly.alignments[message.port].mark((sender, message.feeder), message.epoch)
        elif isinstance(message, Prepare):
            self._send_all(self._snapshots.prepare(message.number, message.time))
        elif isinstance(message, Committed):
            self.jobs.append(self.assembly.commit(message.number, message.before))
        elif isinstance(message, LastBundle):
            self._take_last(message)
        elif isinstance(message, Recover):
            self._recover(message)
        elif isinstance(message, Failed):  # the consumer cannot go on
            if message.incarnation == self.incarnation:
                self.report(message)
        elif isinstance(message, AskReport):
            self.addresses[sender] = message.address
            own = {"frames": self.frames, "malformed": self.malformed}
            self.send(sender, Report(tuple({**self.assembly.figures(), **own}.items())))
        else:
            super().handle(sender, message)

    def tick(self, now: float) -> float:
        if self.running and now >= self._tracking.tell_by:
            self._tell_all()
        self._ask_consumer(now)
        return super().tick(now)

    def repeat(self) -> None:
        if self._restoring.again:
            self._restoring.again = False
            self.jobs.append(self._restoring.load)
        if self.running:
            if self._begun:  # peers without a tracker, too: a marker that they miss was lost
                self._send_all(self._peers.nothing_new())
            self._tell_all()

    def done(self, job: Job, result: object) -> None:
        if job is self._restoring.load:
            self._restoring.take(result)
            self.pace.begin()
            self._restore()
            return
        if isinstance(job, CommitSnapshot) and result is True:
            self.jobs.append(job)  # there is more to do
            return
        answer = self._snapshots.stored(job, result)
        if answer is not None:
            self._send_all(self.assembly.stored(answer))

    # Recovery.

    def _recover(self, message: Recover) -> None:
        if message.incarnation <= self.incarnation:
            return
        self.enter(message.incarnation)
        self.addresses.update(message.addresses)
        load = LoadSnapshot(message.number, message.taken, self.policy.goes_on)
        self._begin(load, message.time)
        self.jobs.append(self._restoring.load)

    def _restore(self) -> bool:
        """Load a turn's worth. Returns whether there is more to do."""
        trouble = self._restoring.work(self.pace, self.incarnation)
        if trouble is not None:
            self.report(trouble)
        if self._restoring.assembly is not None and self._delivery is None:
            self.assembly = self._restoring.assembly
            self._snapshots = Snapshotter(self.assembly, self.incarnation)
            self._applying = Applying(self.assembly, self.pace)
            self._delivery = Delivery(self.barrier, self.incarnation, self.address)
            self._ask_consumer(self.now)
        return self._restoring.under_way

    def _ask_consumer(self, now: float) -> None:
        """Ask for its last bundle, if it is time to."""
        if self._delivery is not None:
            question = self._delivery.question(now)
            if question is not None:
                self.send("consumer", question)

    def _take_last(self, message: LastBundle) -> None:
        if self._delivery is None:
            return
        try:
            again = self._delivery.last(message)
        except DriftlineError as error:
            self._fail(error)
            return
        if again is not None:
            self.send("consumer", again)
        if self.barrier.connected and not self.ready:
            self.ready = self.running = True
            self.hello()

    def _fail(self, error: Exception) -> None:
        self.running = False
        self.report(Failed(self.incarnation, type(error).__name__, str(error)))

    # Elements.

    def _admit(self, sender: str, feeder: int, block: Block) -> None:
        if (admitted := self.assembly.admit(sender, feeder, block)) is not None:
            self._waiting.add(admitted)

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
        if self._stage == 0 and self._tracking.news and self._waiting.many():
            self._advance()
        while self._stage < self.plan.stages:
            stage, self._stage = self._stage, self._stage + 1
            self._work_off(stage)
            if self._peers.waiting:
                self._acknowledge()
            if self.outbox and (self._own or self._waiting.any(self._stage)):
                return True  # others can work meanwhile
        if self._stage > self.plan.stages:
            return False
        self._stage += 1
        if self._tracking.news or self._applying.due:
            self._advance()
        return self._send_bundle()

    def _end_turn(self) -> bool:
        """Do what nobody waits for. Returns whether there is more to do without any new input."""
        self._stage = 0
        rest, self._rest = self._rest, False
        if number := self.assembly.end_turn(self._tracking.acks, whole=not rest):
            self._snapshots.begin(number, INFINITY)
        if self._tracking.acks:
            self._acknowledge()
            self._advance()
            self._send_bundle()
        more, job = self._snapshots.step()
        if job is not None:
            self.jobs.append(job)
        more |= rest or self._applying.due
        more |= bool(self._tracking.acks) or (self._moved and self._waiting.any())
        self._moved = False
        self._tracking.deliver(self.barrier.delivered, self.barrier.stored_last, self.now)
        self.tick_by = min(self.tick_by, self._tracking.tell_by)
        if self.outbox and self._put_off < PUT_OFF:
            self._put_off += 1
            return True  # let it leave; there may be something to do meanwhile
        self._put_off = 0
        if self.outbox:
            self._tidy(ROWS_UNDER_LOAD)
            return True
        return more or self.barrier.encode_ahead() or self._tidy(ROWS_AT_LEISURE)

    def _send_bundle(self) -> bool:
        """Let outputs leave, if any may. Returns whether some have."""
        bundle = None if self._delivery is None else self._delivery.bundle(self.now)
        if bundle is not None:
            self.send("consumer", bundle)
        return bundle is not None

    def _tidy(self, rows: int) -> bool:
        """Do what is not urgent. Returns whether there was anything."""
        final, self._final = self._final, 0
        self.assembly.settle(final)
        return self.assembly.encode_early(rows)

    def _work_off(self, stage: int) -> None:
        """Work off what waits at the ports of a stage and what may be worked off now."""
        if self._own:
            self._admit_own()
        waiting = self._waiting.take(stage)
        for port in self._ports[stage]:
            if port.number in waiting:
                complete = self._tracking.frontiers[stage - 1]
                here, parted = self._waiting.choose(port, waiting[port.number], complete)
                for block in parted:  # the rest of a block: under way in its own name now
                    block.id = self.new_id()
                    self._tracking.acks.add(stage, block.time, block.id)
                if here:
                    self._apply(port, here, complete)
            if self.assembly.alignments and self.assembly.alignments[port.number].complete:
                self._end_epoch(port.number)

    def _apply(self, port: Port, blocks: list[Block], complete: int) -> None:
        """Let blocks through a port's chain, and send on what that makes."""
        alignments = self.assembly.alignments
        epoch_ends = bool(alignments) and alignments[port.number].complete
        tokens, rest = self._applying.apply(port, blocks, complete, whole=epoch_ends)
        if rest:
            self._rest = True
            left = self._waiting.put_back(port.number, rest, self.new_id())
            self._tracking.acks.add(port.stage, left.time, left.id)
        acks = self._tracking.acks
        acks.join(tokens, ())
        for block in blocks:
            acks.add(port.stage, block.time, block.id)
            if block.covers and port.front is not None:
                acks.cover(port.front, block.covers, block.roots)
        if self.assembly.leaving[port.number]:
            self._send_on(port.number)

    def _send_on(self, feeder: int) -> None:
        """Send what a chain has made."""
        for port, node, time, batches in self._applying.leaving.take(feeder):
            id = self.new_id()
            self._count(port, time, id)
            made, to = (feeder, port, time, id, batches), f"node-{node}"
            if node == self.index:
                self._own.append((feeder, Block(port, time, id, batches)))
            elif self.policy.ordered:
                self._send_all(self._peers.frame(to, made))
            elif not self.assembly.keep(to, frame := to_frame(made)):
                self.send(to, frame)

    def _count(self, port: int, time: int, id: int) -> None:
        self.frames += 1
        self._tracking.acks.add(self.plan.ports[port].stage, time, id)

    def _send_all(self, post: Post) -> None:
        for to, message in post:
            self.send(to, message)

    def _admit_own(self) -> None:
        """Let in what does not leave the node."""
        own, self._own = self._own, []
        for feeder, block in own:
            self._admit(self.name, feeder, block)

    # Progress.

    def _advance(self) -> None:
        """Put into effect what is known of the frontiers."""
        if self.index == 0:  # also when nothing moves: an idle front may be what holds it up
            for front, time in self._tracking.tracker.to_ask():
                self.send(f"front-{front}", AskPromise(time))
        if self._tracking.moved():
            self._moved = self._applying.due = True
            self._waiting.settle(self._tracking.frontiers[-1])
        if self._applying.due:
            for port, tokens in self._applying.release(self._tracking.frontiers):
                self._send_on(port)
                self._admit_own()
                self._tracking.acks.join(tokens, ())
        if self.policy.ordered:
            self.barrier.advance(self._tracking.final_outputs(self._waiting.first(-1)))

    def _acknowledge(self) -> None:
        self._send_all(self._peers.acknowledge(*self._tracking.end_turn(self.now)))

    def _tell_all(self) -> None:
        self._send_all(self._peers.acknowledge(*self._tracking.for_peers()))
        self.send("master", self._tracking.for_master())

    # Snapshots.

    def _end_epoch(self, port: int) -> None:
        """All markers have come to a port: cut its state, pass the marker on."""
        self._admit_own()
        alignment = self.assembly.alignments[port]
        epoch = alignment.epoch
        whole = self.assembly.end_epoch(port, epoch)
        for after, _ in self.assembly.leaving[port]:
            for node in range(self.nodes):
                if node == self.index:
                    self.assembly.alignments[after].mark((self.name, port), epoch)
                else:
                    self.send(f"node-{node}", Marker(port, after, epoch))
        for block in alignment.next_epoch():
            self._waiting.add(block)
        if whole:
            self._snapshots.begin(epoch, INFINITY)

    def validate(self) -> None:
        """Assert the invariants of everything in the node."""
        if self._delivery is not None:
            self.assembly.validate()
