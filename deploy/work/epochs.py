"""The assembly of policies with markers: a snapshot is cut operator by operator, epoch by epoch.

Takes: ends of epochs, port by port; commits. Gives: the changelogs of an epoch as one capture, and
whether the snapshot may be prepared. Invariant: once a snapshot is prepared, the outputs of its
epoch, and of all epochs before it, are durable in it or with the consumer.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from driftline.barrier.barrier import NOTHING
from driftline.barrier.epochs import EpochBarrier
from driftline.deploy.work.assembly import Assembly
from driftline.deploy.work.blocks import Block
from driftline.engine.snapshots.jobs import Capture, CommitSnapshot
from driftline.engine.wire.codec import pack


@dataclass(slots=True)
class EpochAssembly(Assembly):
    """Snapshots are cut by markers: each operator ends the epoch when its own inputs have."""

    number: int = 0
    """The epoch that has ended last at a port."""
    taken: Capture = field(default_factory=Capture)
    """The changes of the operators that have ended the epoch."""
    to_deliver: int = NOTHING
    """The consumer has all outputs of the epoch as soon as its t_last is this one."""
    ended: set[int] = field(default_factory=set)
    """The ports that have ended the epoch."""
    committed: int = 0
    """The epoch that was committed last."""

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
        # No part from this one on holds the outputs that the barrier has released: the consumer
        # has to have them first.
        if isinstance(self.barrier, EpochBarrier):
            return not self.barrier.ready and self.barrier.outstanding is None
        return self.barrier.t_last >= self.to_deliver

    @property
    def unsaved_bytes(self) -> int:
        outputs = self.barrier.unsealed_bytes if isinstance(self.barrier, EpochBarrier) else 0
        return super(EpochAssembly, self).unsaved_bytes + outputs  # a class with slots is made anew

    @property
    def waits_for_snapshot(self) -> bool:
        # Every port has ended the epoch, and sent its markers: no other node waits for this one.
        # Once a marker of the next epoch comes, the epoch is committed, or was given up.
        epochs = (alignment.epoch for alignment in self.alignments.values())
        return self.number > self.committed and not self.ended and max(epochs) <= self.number

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
        self.committed = number
        if isinstance(self.barrier, EpochBarrier):
            self.barrier.commit(number)
            # `whole`: outputs wait for the next part, which must not wait for a long merge.
            return CommitSnapshot(number, before, whole=False)
        return CommitSnapshot(number, before)
