"""Node pipelines of the comparison policies, which do not cut snapshots by label.

- at-least-once: `EpochPipeline` cuts by markers without alignment;
- two-phase: `TwoPhasePipeline` cuts by aligned markers; outputs wait for the commit;
- strong productions: `ProductionPipeline` writes a sequence of snapshots of this node alone.

Takes: blocks, markers, ends of turns, commits, results of writes. Gives: captures of the changes of
an epoch or a production, whether a part may be written, and messages that had to wait.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import ClassVar, Generic, TypeVar

from driftline.acker.tracker import blocking_cell
from driftline.barrier.barrier import NO_T_LAST
from driftline.barrier.unordered import EpochBarrier, ProductionBarrier
from driftline.deploy.node.input_queue import Block
from driftline.deploy.node.pipeline import EpochEnd, NodePipeline
from driftline.deploy.node.tracking import Acks
from driftline.engine.errors import MalformedMessage
from driftline.engine.flow.plan import Port
from driftline.engine.snapshots.jobs import Capture, MergeParts
from driftline.engine.snapshots.ledger import LEDGER, Ledger
from driftline.engine.snapshots.merging import restore_in_steps
from driftline.engine.state.table import StateTable
from driftline.engine.wire.codec import pack
from driftline.engine.wire.messages import (
    Acknowledge,
    Frame,
    Marker,
    Outgoing,
    Prepared,
    PrepareFailed,
)

T = TypeVar("T")
Channel = tuple[str, int]


class Alignment(Generic[T]):
    """Marker alignment of the channels of one port, for blocks of type T.

    Takes: blocks and markers of the port's channels. Gives: which blocks may be processed now,
    when the epoch is complete, and then the blocks that had to wait.
    Invariant, if aligned: when the epoch is complete, exactly the blocks before each channel's
    marker have been processed, so the state is the effect of the epochs so far.

    A channel is a (sender, upstream) pair that sends to the port. A marker ends the epoch on its
    channel; the port's epoch is complete once all channels have delivered the marker. If `aligned`,
    blocks behind a marker wait until then. Otherwise (at-least-once) they are processed at once:
    the snapshot then contains part of the next epoch, which a replay applies again.
    """

    def __init__(self, channels: set[Channel], aligned: bool) -> None:
        self._channels = channels
        self._aligned = aligned
        self._ended: set[Channel] = set()
        self._waiting: list[T] = []
        self.epoch = 0
        """Epoch of the newest marker; 0 before the first one."""

    def admit(self, channel: Channel, block: T) -> bool:
        """Return whether a block may be processed now. If not, keep it for `next_epoch`."""
        if self._aligned and channel in self._ended:
            self._waiting.append(block)
            return False
        return True

    def mark(self, channel: Channel, epoch: int) -> None:
        """Record the marker of an epoch on a channel. Precondition: the channel feeds this port."""
        assert channel in self._channels, f"a marker from {channel}, which does not feed this port"
        self._ended.add(channel)
        self.epoch = epoch

    @property
    def complete(self) -> bool:
        """Whether all channels have delivered the marker of the epoch."""
        return self._ended == self._channels

    def next_epoch(self) -> list[T]:
        """Enter the next epoch. Return the blocks that had to wait, in order of arrival.

        Precondition: `complete`.
        """
        self._ended = set()
        waiting, self._waiting = self._waiting, []
        return waiting


@dataclass(slots=True)
class EpochPipeline(NodePipeline):
    """Pipeline with snapshots cut by markers.

    A port ends its epoch once all its channels have delivered the marker. `names`: names of the
    nodes of the layout; `me`: name of this node. Invariant: once a snapshot is prepared, the
    outputs of its epoch, and of all earlier epochs, are durable in it or at the consumer.
    """

    names: list[str] = field(kw_only=True)
    me: str = field(kw_only=True)
    alignments: dict[int, Alignment[Block]] = field(init=False)
    """Port -> the channels whose markers end its epoch."""
    number: int = 0
    """The newest epoch that has ended at a port."""
    epoch_changes: Capture = field(default_factory=Capture)
    """Changes of the operators whose ports have ended the epoch, for the next part."""
    required_t_last: int = NO_T_LAST
    """Once the consumer's t_last reaches this, the consumer has all outputs of the epoch."""
    ended_ports: set[int] = field(default_factory=set)
    """Ports that have ended epoch `number`; empty once all ports have."""
    committed: int = 0
    """The newest committed epoch."""
    aligned: ClassVar[bool] = False
    """Whether blocks behind a marker wait for the markers of the other channels."""

    def __post_init__(self) -> None:
        # No bare super(): `slots=True` replaces the class.
        super(EpochPipeline, self).__post_init__()
        self.alignments = {port.number: self._alignment(port) for port in self.plan.ports}

    def _alignment(self, port: Port) -> Alignment[Block]:
        if port.front is not None:
            channels = {(f"front-{port.front}", port.number)}
        else:
            channels = {(name, upstream) for name in self.names for upstream in port.upstreams}
        return Alignment[Block](channels, self.aligned)

    def admit(self, sender: str, upstream: int, block: Block) -> Block | None:
        return block if self.alignments[block.port].admit((sender, upstream), block) else None

    def capture(self, time: int) -> Capture:
        capture, self.epoch_changes = self.epoch_changes, Capture()
        return capture

    def meta(self, time: int) -> bytes:
        self.required_t_last = self.barrier.target_t_last
        return pack((self.required_t_last, ()))

    def may_prepare(self) -> bool:
        return self.barrier.t_last >= self.required_t_last

    @property
    def waits_for_snapshot(self) -> bool:
        # If every port has ended the epoch and sent its markers, no other node waits for this one.
        # A marker of the next epoch means that this epoch is committed or abandoned.
        epochs = (alignment.epoch for alignment in self.alignments.values())
        return self.number > self.committed and not self.ended_ports and max(epochs) <= self.number

    def mark(self, sender: str, marker: Marker) -> None:
        if marker.port not in self.alignments:
            raise MalformedMessage(f"a marker for port {marker.port}, which does not exist")
        self.alignments[marker.port].mark((sender, marker.upstream), marker.epoch)

    def ends_epoch(self, port: int) -> bool:
        return self.alignments[port].complete

    def end_epoch(self, port: int) -> EpochEnd:
        epoch = self.number = self.alignments[port].epoch
        step = self.keyed.get(self.plan.ports[port].vertex.name)
        if step is not None:
            self.epoch_changes.take(step.changelog)
        markers: Outgoing = []
        for next_port, _ in self.outbounds[port]:
            self.alignments[next_port].mark((self.me, port), epoch)
            others = (name for name in self.names if name != self.me)
            markers += [(name, Marker(port, next_port, epoch)) for name in others]
        self.ended_ports.add(port)
        has_ended_everywhere = len(self.ended_ports) == len(self.plan.ports)
        if has_ended_everywhere:
            self.ended_ports.clear()
        blocks = self.alignments[port].next_epoch()
        return EpochEnd(markers, blocks, epoch if has_ended_everywhere else 0)

    def merge_job(self, number: int, previous: int) -> MergeParts:
        self.committed = number
        return MergeParts(number, previous)


@dataclass(slots=True)
class TwoPhasePipeline(EpochPipeline):
    """Pipeline that pre-commits the outputs of an epoch with its snapshot.

    The outputs leave when the snapshot is committed.
    """

    outputs: EpochBarrier = field(kw_only=True)
    aligned: ClassVar[bool] = True

    def begin_blocks(self, port: int, blocks: list[Block]) -> None:
        self.outputs.current_port = port

    def meta(self, time: int) -> bytes:
        self.required_t_last = self.outputs.target_t_last
        return pack((self.required_t_last, self.outputs.pre_commit(self.number)))

    def may_prepare(self) -> bool:
        # No part contains outputs that the barrier has released. Therefore the consumer has to
        # store these outputs before this part is written.
        return not self.outputs.queued and self.outputs.outstanding is None

    @property
    def unsaved_bytes(self) -> int:
        return super(TwoPhasePipeline, self).unsaved_bytes + self.outputs.unsealed_bytes

    def end_epoch(self, port: int) -> EpochEnd:
        self.outputs.seal(port, self.alignments[port].epoch)
        return super(TwoPhasePipeline, self).end_epoch(port)

    def merge_job(self, number: int, previous: int) -> MergeParts:
        self.committed = number
        self.outputs.commit(number)
        # `merge_all=False`: outputs wait for the next part, which must not wait for a long merge.
        return MergeParts(number, previous, merge_all=False)


@dataclass(slots=True)
class ProductionPipeline(NodePipeline):
    """Pipeline whose snapshots are productions: each begins once the previous one is durable.

    A production contains all results of the turns since the previous production: state changes,
    frames, outputs, acknowledgements, and the ids of the processed frames. It is snapshot `number`
    of this node alone. While it is being written the node keeps processing.

    Invariants: a frame leaves only after it is durable, together with the ids of the frames that it
    was made from; a frame or a record that arrives twice is processed once; after a recovery no
    frontier moves before every node has reported the frames that it resends.
    """

    index: int = field(kw_only=True)
    """Position of the node in the layout."""
    me: str = field(kw_only=True)
    """Name of the node."""
    outputs: ProductionBarrier = field(kw_only=True)
    number: int = field(kw_only=True)
    """Number of the newest production that has begun."""
    ledger: Ledger = field(default_factory=Ledger)
    unprocessed_ids: set[int] = field(default_factory=set)
    """Ids of frames that arrived from other nodes and are not processed yet."""
    acks: Acks = field(default_factory=Acks)
    """Acknowledgement of the work since the last production, and of frames that arrived again."""
    next_frames: Outgoing = field(default_factory=list)
    """Frames made since the last production began."""
    unstored_messages: Outgoing = field(default_factory=list)
    """Frames and acknowledgements that leave once the current production is durable."""
    resent: Outgoing = field(default_factory=list)
    """Durable frames that receivers may lack, and their acknowledgement, to send after a recovery
    once all nodes have entered the incarnation."""
    has_failed: bool = False
    """Whether the last write failed: no production begins before the next `Progress`."""

    def load(self, segments: Iterable[bytes], start: int) -> Iterator[None]:
        yield from restore_in_steps(self.tables, segments)
        self.ledger.rebuild_times()
        self.ledger.forget(start)
        self.outputs.restore(self.number, self.ledger.outputs)
        cells = [blocking_cell(self.index, start)]
        for to, frame in self.ledger.frames:
            cells.append((self.plan.ports[frame.port].stage, frame.time, frame.id))
            self.resent.append((to, frame))
        self.resent.append(("master", Acknowledge(tuple(cells), (), 0)))

    def admit(self, sender: str, upstream: int, block: Block) -> Block | None:
        port = self.plan.ports[block.port]
        if port.front is not None:
            next_time = self.ledger.processed_below(port.front)
            if block.first >= next_time:
                return block
            if block.last < next_time:
                self.acks.cover(port.front, block.interval, block.roots)
                return None
            rest = block.not_below(next_time)  # frontiers may have passed the old tracking time
            rest.interval = block.interval
            return rest
        if sender != self.me:
            if self.ledger.was_processed(block.time, block.id):
                self.acks.add(port.stage, block.time, block.id)
                return None
            self.unprocessed_ids.add(block.id)
        return block

    def begin_blocks(self, port: int, blocks: list[Block]) -> None:
        front = self.plan.ports[port].front
        for block in blocks:
            if front is not None:
                self.ledger.mark_records_processed(front, block.last)
            elif block.id in self.unprocessed_ids:
                self.unprocessed_ids.remove(block.id)
                self.ledger.mark_frame_processed(block.time, block.id)

    def defer_frame(self, to: str, frame: Frame) -> bool:
        self.ledger.keep_frame(to, frame)
        self.next_frames.append((to, frame))
        return True

    @property
    def durable_production(self) -> int | None:
        return self.outputs.released_up_to

    def end_turn(self, acks: Acks, unfinished: bool = False) -> int:
        self.acks.join(*acks.take())
        if self.storing or unfinished or not (self.acks or self.unstored_messages):
            return 0
        self.number += 1
        return self.number

    def meta(self, time: int) -> bytes:
        return pack((self.outputs.t_last, ()))

    def capture(self, time: int) -> Capture:
        self.ledger.forget_outputs(self.outputs.drop_delivered())
        outputs = self.outputs.seal(self.number)
        if outputs is not None:
            self.ledger.keep_outputs(self.number, outputs)
        self.ledger.keep_changes()
        capture = Capture()
        for changelog in (*(step.changelog for step in self.keyed.values()), self.ledger.changelog):
            capture.take(changelog)
        while capture.step():  # at once: all outputs wait for this production
            pass
        self.unstored_messages += [
            *self.next_frames,
            ("master", Acknowledge(*self.acks.take()[:2], 0)),
        ]
        self.next_frames.clear()
        self.storing = True
        return capture

    def stored(self, answer: Prepared | PrepareFailed) -> Outgoing:
        if isinstance(answer, PrepareFailed):
            self.has_failed = True
            return []
        self.storing = False
        self.outputs.commit(answer.number)
        messages = self.resent + self.unstored_messages
        self.resent, self.unstored_messages = [], []
        return messages

    def progress(self, processed: int) -> Outgoing:
        self.outputs.record_processed(processed)
        self.ledger.forget(processed)
        if self.has_failed:  # the next production may begin; it includes the rows of the failed one
            self.has_failed = self.storing = False
        messages, self.resent = self.resent, []
        return messages

    @property
    def waits_for_snapshot(self) -> bool:
        return False  # a production begins only after a completely processed block

    def merge_job(self, number: int, previous: int) -> MergeParts:
        # No recovery returns to an earlier production. `merge_all=False`: a production must not
        # wait for a long merge.
        return MergeParts(self.number, self.number - 1, merge_all=False)

    @property
    def tables(self) -> dict[str, StateTable]:
        tables = {name: step.table for name, step in self.keyed.items()}
        tables[LEDGER] = self.ledger.table
        return tables
