"""What a node runs in one incarnation: chains, gates, barrier, and how snapshots are cut.

There is a variant for each way in which snapshots are cut; `deploy/node/parts.py` chooses it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from driftline.barrier.barrier import NOTHING, Barrier
from driftline.barrier.epochs import EpochBarrier
from driftline.barrier.ordered import OrderedBarrier
from driftline.barrier.productions import ProductionBarrier
from driftline.deploy.work.blocks import Block
from driftline.deploy.work.gates import Gate
from driftline.deploy.work.tracking import Acks, token
from driftline.engine.compared.alignment import Alignment
from driftline.engine.compared.ledger import LEDGER, Ledger
from driftline.engine.flow.plan import Plan
from driftline.engine.order.chains import Chains
from driftline.engine.order.ends import Outbound
from driftline.engine.order.keyed import Keyed
from driftline.engine.snapshots.jobs import Capture, CommitSnapshot
from driftline.engine.snapshots.merging import restoring
from driftline.engine.state.table import StateTable
from driftline.engine.wire.codec import pack
from driftline.engine.wire.messages import Acknowledge, Frame, Message, Prepared, PrepareFailed
from driftline.engine.wire.party import log

Post = list[tuple[str, Message]]
"""Messages and whom they are for, in this order."""


@dataclass(slots=True)
class Assembly:
    """The parts of a node, by label cut; the variants of epochs and productions are below."""

    plan: Plan
    barrier: Barrier
    chains: Chains
    keyed: dict[str, Keyed]
    gates: list[Gate]
    alignments: dict[int, Alignment[Block]] = field(default_factory=dict)
    leaving: dict[int, list[tuple[int, list[Outbound]]]] = field(init=False)
    """feeder -> (port, its outbounds per node)"""
    storing: bool = False
    """Whether what others wait for is on its way to the disk."""

    def __post_init__(self) -> None:
        self.leaving = {port.number: [] for port in self.plan.ports}
        for (feeder, port), outbounds in self.chains.outbounds.items():
            self.leaving[feeder].append((port, outbounds))

    def load(self, segments: list[bytes], start: int) -> Iterator[None]:
        """Read the states back, in steps; what is below `start` is done with.

        Raises SnapshotDamaged.
        """
        return restoring(self.tables, segments)

    def admit(self, sender: str, feeder: int, block: Block) -> Block | None:
        """What of a block that has come may be worked off now."""
        return block

    def enter(self, port: int, blocks: list[Block]) -> None:
        """A port's chain is about to work these blocks off."""

    def keep(self, to: str, frame: Frame) -> bool:
        """Whether a frame that has been made may not leave yet."""
        return False

    def end_turn(self, acks: Acks, whole: bool = True) -> int:
        """The turn's work is done; `whole`: of nothing a part. Returns the number of the snapshot
        to take because of it, or 0."""
        return 0

    def progress(self, processed: int) -> Post:
        """Everything below a time is processed. Returns what is to be sent."""
        self.barrier.progress(processed)
        return []

    def stored(self, answer: Prepared | PrepareFailed) -> Post:
        """A snapshot is on the disk, or not. Returns what is to be sent."""
        return [("master", answer)]

    def close(self, port: int, frontier: int) -> None:
        """No element with a time below the frontier will come to a port any more."""
        if self.gates[port].holds_back:
            return  # those that have come may wait at the gate
        step = self.keyed.get(self.plan.ports[port].vertex.name)
        if step is not None:
            step.close(frontier)

    def settle(self, frontier: int) -> None:
        """Elements below the frontier are final."""
        for step in self.keyed.values():
            step.settle(frontier)

    def encode_early(self, rows: int) -> bool:
        """Do a little of what the next snapshot will need. Returns whether there was anything."""
        done = [step.changelog.encode_early(rows) for step in self.keyed.values()]
        return any(done)

    def capture(self, time: int) -> Capture:
        """Begin to write the state as of a time, below which everything is delivered."""
        capture = Capture()
        for step in self.keyed.values():
            step.settle(time, exactly=True)
            capture.take(step.changelog)
        return capture

    @property
    def tables(self) -> dict[str, StateTable]:
        """Operator -> its states."""
        return {name: step.table for name, step in self.keyed.items()}

    def figures(self) -> dict[str, int]:
        """What the operators have counted."""
        keyed = self.keyed.values()
        return {
            "elements": sum(step.elements for step in keyed),
            "late": sum(step.late for step in keyed),
            "reapplied": sum(step.reapplied for step in keyed),
            "keys": sum(len(step.table) for step in keyed),
        }

    def meta(self, time: int) -> bytes:
        """What a snapshot says beside the state: the barrier's checksum as of its time."""
        assert isinstance(self.barrier, OrderedBarrier)
        return pack(self.barrier.checksum_before(time))

    @property
    def durable(self) -> int | None:
        """The newest production that is durable; None where nodes make none."""
        return None

    def may_prepare(self) -> bool:
        """Whether nothing but the disk stands between the snapshot and its being prepared."""
        return True

    def end_epoch(self, port: int, epoch: int) -> bool:
        """A port's epoch is over. Returns whether it is for the whole node."""
        raise AssertionError("there are no epochs in this policy")

    def commit(self, number: int, before: int) -> CommitSnapshot:
        """A snapshot is valid, after the one before. Returns what the store has to do now."""
        return CommitSnapshot(number, before)

    def validate(self) -> None:
        """Assert the invariants of the parts."""
        self.barrier.validate()
        for step in self.keyed.values():
            step.validate()


@dataclass(slots=True)
class EpochAssembly(Assembly):
    """Snapshots are cut by markers, operator by operator."""

    number: int = 0
    taken: Capture = field(default_factory=Capture)
    """What the operators that have ended the epoch give to its snapshot."""
    to_deliver: int = NOTHING
    """The bundle that holds the last outputs of the epoch that is ending."""
    ended: set[int] = field(default_factory=set)

    def admit(self, sender: str, feeder: int, block: Block) -> Block | None:
        return block if self.alignments[block.port].admit((sender, feeder), block) else None

    def enter(self, port: int, blocks: list[Block]) -> None:
        if isinstance(self.barrier, EpochBarrier):
            self.barrier.chain = port

    def capture(self, time: int) -> Capture:
        capture, self.taken = self.taken, Capture()
        return capture

    def meta(self, time: int) -> bytes:
        self.to_deliver = self.barrier.delivering
        if isinstance(self.barrier, EpochBarrier):
            return pack((self.to_deliver, self.barrier.pre_commit(self.number)))
        return pack((self.to_deliver, ()))

    def may_prepare(self) -> bool:
        # Outputs that are out of the barrier's hands are in no snapshot from this one on: those
        # that left at once, and those of earlier epochs, have to be with the consumer by now.
        if isinstance(self.barrier, EpochBarrier):
            return not self.barrier.ready and self.barrier.outstanding is None
        return self.barrier.t_last >= self.to_deliver

    def end_epoch(self, port: int, epoch: int) -> bool:
        self.number = epoch
        vertex = self.plan.ports[port].vertex
        step = self.keyed.get(vertex.name)
        if step is not None:
            self.taken.take(step.changelog)
        if isinstance(self.barrier, EpochBarrier):
            self.barrier.seal(port, epoch)
        self.ended.add(port)
        if len(self.ended) < len(self.plan.ports):
            return False
        self.ended.clear()
        return True

    def commit(self, number: int, before: int) -> CommitSnapshot:
        if isinstance(self.barrier, EpochBarrier):
            self.barrier.commit(number)
        return CommitSnapshot(number, before)


@dataclass(slots=True)
class ProductionAssembly(Assembly):
    """Strong productions: what is made leaves once it is durable with what it was made of.

    A production is all that turns have made since the last one was written; it is snapshot
    `number` of this node alone. While it is on its way to the disk the node works on.

    Invariants: what has left is on the disk, and so is what it was made of, frames as wholes; what
    comes again changes nothing; no frontier moves before every node has said what it sends again.
    """

    index: int = field(kw_only=True)
    me: str = field(kw_only=True)
    outputs: ProductionBarrier = field(kw_only=True)
    number: int = field(kw_only=True)
    """Of the production that was begun last."""
    ledger: Ledger = field(default_factory=Ledger)
    arrived: set[int] = field(default_factory=set)
    """Ids of frames that have come and wait to be worked off."""
    acks: Acks = field(default_factory=Acks)
    """What has been worked off and made, and what had been before it came again."""
    made: Post = field(default_factory=list)
    """What may leave when the next production is durable."""
    written: Post = field(default_factory=list)
    """What may leave when the one is durable that is on its way to the disk."""
    again: Post = field(default_factory=list)
    """What receivers may not have had: it is sent as soon as all are there."""
    failed: bool = False

    def load(self, segments: list[bytes], start: int) -> Iterator[None]:
        yield from restoring(self.tables, segments)
        self.ledger.loaded()
        self.ledger.forget(start)
        self.outputs.restore(self.number, self.ledger.outputs)
        cells = [token(self.index, start)]
        for to, frame in self.ledger.frames:
            cells.append((self.plan.ports[frame.port].stage, frame.time, frame.id))
            self.again.append((to, frame))
        self.again.append(("master", Acknowledge(tuple(cells), (), 0)))

    def admit(self, sender: str, feeder: int, block: Block) -> Block | None:
        port = self.plan.ports[block.port]
        if port.front is not None:
            due = self.ledger.next_of(port.front)
            if block.first >= due:
                return block
            if block.last < due:
                self.acks.cover(port.front, block.covers, block.roots)
                return None
            rest = block.part(due, before=False)  # under its own time: the block's may be done with
            rest.covers = block.covers
            return rest
        if sender != self.me:
            if self.ledger.has_had(block.time, block.id):
                self.acks.add(port.stage, block.time, block.id)
                return None
            self.arrived.add(block.id)
        return block

    def enter(self, port: int, blocks: list[Block]) -> None:
        front = self.plan.ports[port].front
        for block in blocks:
            if front is not None:
                self.ledger.take_record(front, block.last)
            elif block.id in self.arrived:
                self.arrived.remove(block.id)
                self.ledger.take_frame(block.time, block.id)

    def keep(self, to: str, frame: Frame) -> bool:
        self.ledger.keep_frame(to, frame)
        self.made.append((to, frame))
        return True

    @property
    def durable(self) -> int | None:
        return self.outputs.moved_to

    def end_turn(self, acks: Acks, whole: bool = True) -> int:
        self.acks.join(*acks.take())
        if self.storing or not whole or not (self.acks or self.written):
            return 0
        self.number += 1
        return self.number

    def meta(self, time: int) -> bytes:
        return pack((self.outputs.t_last, ()))

    def capture(self, time: int) -> Capture:
        self.ledger.forget_outputs(self.outputs.forget())
        outputs = self.outputs.seal(self.number)
        if outputs is not None:
            self.ledger.keep_outputs(self.number, outputs)
        self.ledger.keep_changes()
        capture = Capture()
        for kept in (*(step.changelog for step in self.keyed.values()), self.ledger.changelog):
            capture.take(kept)
        while capture.step():  # at once: everything waits for it
            pass
        self.written += [*self.made, ("master", Acknowledge(*self.acks.take(), 0))]
        self.made.clear()
        self.storing = True
        return capture

    def stored(self, answer: Prepared | PrepareFailed) -> Post:
        if isinstance(answer, PrepareFailed):
            log.warning("%s: production %d: %s", self.me, answer.number, answer.reason)
            self.failed = True
            return []
        self.storing = False
        self.outputs.commit(answer.number)
        leaving, self.again, self.written = self.again + self.written, [], []
        return leaving

    def progress(self, processed: int) -> Post:
        self.outputs.progress(processed)
        self.ledger.forget(processed)
        if self.failed:  # its rows go with the next production, which is tried now
            self.failed = self.storing = False
        leaving, self.again = self.again, []
        return leaving

    def commit(self, number: int, before: int) -> CommitSnapshot:
        # Nodes are never taken back; and productions have to wait for no merge.
        return CommitSnapshot(self.number, self.number - 1, whole=False)

    @property
    def tables(self) -> dict[str, StateTable]:
        tables = {name: step.table for name, step in self.keyed.items()}
        tables[LEDGER] = self.ledger.table
        return tables
