"""The assembly of policies with markers: a snapshot is cut operator by operator, epoch by epoch.

Takes: markers, and ends of epochs, port by port; commits. Gives: the changelogs of an epoch as one
capture, and whether the snapshot may be prepared. Invariant: once a snapshot is prepared, the
outputs of its epoch, and of all epochs before it, are durable in it or with the consumer.

`Alignment` says when an epoch ends at a port (thesis, Algorithm 6; Flink's barriers).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, TypeVar

from driftline.barrier.barrier import NOTHING
from driftline.barrier.epochs import EpochBarrier
from driftline.deploy.node.assembly import Assembly, EpochEnd, Post
from driftline.deploy.node.blocks import Block
from driftline.engine.errors import MalformedMessage
from driftline.engine.flow.plan import Port
from driftline.engine.snapshots.jobs import Capture, CommitSnapshot
from driftline.engine.wire.codec import pack
from driftline.engine.wire.messages import Marker

T = TypeVar("T")
Channel = tuple[str, int]


class Alignment(Generic[T]):
    """The channels of one port, for blocks of type T; `aligned`: blocks wait for markers.

    Takes: blocks and markers of the port's channels. Gives: which blocks may be worked off now,
    when the epoch is complete, and then the blocks that had to wait.
    Invariant, if aligned: when the epoch is complete, exactly the blocks before each channel's
    marker have been worked off, so the state is the effect of the epochs so far.

    A channel is a (sender, feeder) pair that sends to the port. A marker ends the epoch on its
    channel; the port's epoch is complete once the marker has come on all channels. If aligned,
    blocks behind a marker wait until then. If not (at-least-once), they are worked off at once: the
    state then contains part of the next epoch, which a replay applies once more.
    """

    def __init__(self, channels: set[Channel], aligned: bool) -> None:
        self._channels = channels
        self._aligned = aligned
        self._ended: set[Channel] = set()
        self._waiting: list[T] = []
        self.epoch = 0
        """The epoch that has ended on some channels, or on all; 0 before the first marker."""

    def admit(self, channel: Channel, block: T) -> bool:
        """Whether a block may be worked off now. If not, it is kept for `next_epoch`."""
        if self._aligned and channel in self._ended:
            self._waiting.append(block)
            return False
        return True

    def mark(self, channel: Channel, epoch: int) -> None:
        """Note the marker of an epoch on a channel. Precondition: the channel feeds this port."""
        assert channel in self._channels, f"a marker from {channel}, which does not feed this port"
        self._ended.add(channel)
        self.epoch = epoch

    @property
    def complete(self) -> bool:
        """Whether the marker has come on all channels."""
        return self._ended == self._channels

    def next_epoch(self) -> list[T]:
        """Enter the next epoch. Returns the blocks that had to wait, in order of arrival.

        Precondition: `complete`.
        """
        self._ended = set()
        waiting, self._waiting = self._waiting, []
        return waiting


@dataclass(slots=True)
class EpochAssembly(Assembly):
    """Snapshots are cut by markers: each operator ends the epoch when its own inputs have.

    `names`: the nodes of the layout; `me`: this one; `aligned`: see `Alignment`.
    """

    names: list[str] = field(kw_only=True)
    me: str = field(kw_only=True)
    aligned: bool = field(kw_only=True)
    alignments: dict[int, Alignment[Block]] = field(init=False)
    """Port -> the channels whose markers end its epoch."""
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

    def __post_init__(self) -> None:
        super(EpochAssembly, self).__post_init__()  # a class with slots is made anew
        self.alignments = {port.number: self._alignment(port) for port in self.plan.ports}

    def _alignment(self, port: Port) -> Alignment[Block]:
        if port.front is not None:
            channels = {(f"front-{port.front}", port.number)}
        else:
            channels = {(name, feeder) for name in self.names for feeder in port.feeders}
        return Alignment[Block](channels, self.aligned)

    def admit(self, sender: str, feeder: int, block: Block) -> Block | None:
        return block if self.alignments[block.port].admit((sender, feeder), block) else None

    def enter(self, port: int, blocks: list[T]) -> None:
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

    def mark(self, sender: str, marker: Marker) -> None:
        if marker.port not in self.alignments:
            raise MalformedMessage(f"a marker for port {marker.port}, which does not exist")
        self.alignments[marker.port].mark((sender, marker.feeder), marker.epoch)

    def ends_epoch(self, port: int) -> bool:
        return self.alignments[port].complete

    def end_epoch(self, port: int) -> EpochEnd:
        epoch = self.number = self.alignments[port].epoch
        step = self.keyed.get(self.plan.ports[port].vertex.name)
        if step is not None:
            self.taken.take(step.changelog)
        if isinstance(self.barrier, EpochBarrier):
            self.barrier.seal(port, epoch)
        markers: Post = []
        for after, _ in self.outbounds[port]:
            self.alignments[after].mark((self.me, port), epoch)
            others = (name for name in self.names if name != self.me)
            markers += [(name, Marker(port, after, epoch)) for name in others]
        self.ended.add(port)
        has_ended_everywhere = len(self.ended) == len(self.plan.ports)
        if has_ended_everywhere:
            self.ended.clear()
        blocks = self.alignments[port].next_epoch()
        return EpochEnd(markers, blocks, epoch if has_ended_everywhere else 0)

    def commit(self, number: int, before: int) -> CommitSnapshot:
        self.committed = number
        if isinstance(self.barrier, EpochBarrier):
            self.barrier.commit(number)
            # `whole`: outputs wait for the next part, which must not wait for a long merge.
            return CommitSnapshot(number, before, whole=False)
        return CommitSnapshot(number, before)
