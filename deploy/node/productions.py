"""The assembly of strong productions: outputs and frames leave once they are durable.

A production is everything that turns have made since the last production was written: changes of
state, frames, outputs, acknowledgements, and the ids of the frames that were worked off. It is
snapshot `number` of this node alone. While it is being written the node works on.

Takes: frames, the ends of turns, results of writes. Gives: productions to write, then their frames
and acknowledgements. Invariants: a frame leaves only after it is durable, together with the ids of
the frames that it was made of; a frame or a record that comes twice is worked off once; no frontier
moves before every node has said which frames it sends again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from driftline.acker.tracker import token
from driftline.barrier.productions import ProductionBarrier
from driftline.deploy.node.assembly import Assembly, Post
from driftline.deploy.node.blocks import Block
from driftline.deploy.node.tracking import Acks
from driftline.engine.snapshots.jobs import Capture, CommitSnapshot
from driftline.engine.snapshots.ledger import LEDGER, Ledger
from driftline.engine.snapshots.merging import restoring
from driftline.engine.state.table import StateTable
from driftline.engine.wire.codec import pack
from driftline.engine.wire.messages import Acknowledge, Frame, Prepared, PrepareFailed


@dataclass(slots=True)
class ProductionAssembly(Assembly):
    """Snapshots are productions: the node writes one whenever the one before is durable."""

    index: int = field(kw_only=True)
    me: str = field(kw_only=True)
    """The name of the node."""
    outputs: ProductionBarrier = field(kw_only=True)
    number: int = field(kw_only=True)
    """The number of the production that was begun last."""
    ledger: Ledger = field(default_factory=Ledger)
    arrived: set[int] = field(default_factory=set)
    """The ids of other nodes' frames that have come and are not worked off."""
    acks: Acks = field(default_factory=Acks)
    """The work since the last production, and frames that came again and had been worked off."""
    made: Post = field(default_factory=list)
    """The frames of the next production."""
    written: Post = field(default_factory=list)
    """The frames and the acknowledgement of the production that is being written."""
    resent: Post = field(default_factory=list)
    """Durable frames that receivers may not have, and their cells; sent when all nodes run."""
    failed: bool = False
    """Whether the last write failed; the next production is begun with the next progress."""

    def load(self, segments: Iterable[bytes], start: int) -> Iterator[None]:
        yield from restoring(self.tables, segments)
        self.ledger.loaded()
        self.ledger.forget(start)
        self.outputs.restore(self.number, self.ledger.outputs)
        cells = [token(self.index, start)]
        for to, frame in self.ledger.frames:
            cells.append((self.plan.ports[frame.port].stage, frame.time, frame.id))
            self.resent.append((to, frame))
        self.resent.append(("master", Acknowledge(tuple(cells), (), 0)))

    def admit(self, sender: str, feeder: int, block: Block) -> Block | None:
        port = self.plan.ports[block.port]
        if port.front is not None:
            due = self.ledger.next_of(port.front)
            if block.first >= due:
                return block
            if block.last < due:
                self.acks.cover(port.front, block.covers, block.roots)
                return None
            new = block.not_below(due)  # under its own time: frontiers may have passed the block's
            new.covers = block.covers
            return new
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
        return self.outputs.released_to

    def end_turn(self, acks: Acks, unfinished: bool = False) -> int:
        self.acks.join(*acks.take())
        if self.storing or unfinished or not (self.acks or self.written):
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
        for changelog in (*(step.changelog for step in self.keyed.values()), self.ledger.changelog):
            capture.take(changelog)
        while capture.step():  # at once: all outputs wait for it
            pass
        self.written += [*self.made, ("master", Acknowledge(*self.acks.take(), 0))]
        self.made.clear()
        self.storing = True
        return capture

    def stored(self, answer: Prepared | PrepareFailed) -> Post:
        if isinstance(answer, PrepareFailed):
            self.failed = True
            return []
        self.storing = False
        self.outputs.commit(answer.number)
        post, self.resent, self.written = self.resent + self.written, [], []
        return post

    def progress(self, processed: int) -> Post:
        self.outputs.progress(processed)
        self.ledger.forget(processed)
        if self.failed:  # the next production takes the rows along, and is begun now
            self.failed = self.storing = False
        post, self.resent = self.resent, []
        return post

    @property
    def waits_for_snapshot(self) -> bool:
        return False  # a production ends between two blocks: the one before has to be worked off

    def commit(self, number: int, before: int) -> CommitSnapshot:
        # No recovery goes back to an earlier production; `whole`: none waits for a long merge.
        return CommitSnapshot(self.number, self.number - 1, whole=False)

    @property
    def tables(self) -> dict[str, StateTable]:
        tables = {name: step.table for name, step in self.keyed.items()}
        tables[LEDGER] = self.ledger.table
        return tables
