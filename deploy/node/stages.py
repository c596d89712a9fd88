"""Stages: works off the blocks of a node stage by stage, and sends the frames that this makes.

Within a stage, blocks are worked off in label order, so that few elements come late. Blocks for the
node itself are not sent; a later stage of the same turn works them off.

Takes: blocks, markers, frontiers. Gives: frames, markers, and acknowledgements to the tracking.
Invariant: an id is acknowledged together with the ids of all frames sent because of it.
"""

from __future__ import annotations

from collections.abc import Callable

from driftline.deploy.node.components import Components
from driftline.deploy.node.snapshotter import Snapshotter
from driftline.deploy.work.applying import Applying
from driftline.deploy.work.assembly import Assembly
from driftline.deploy.work.blocks import Block
from driftline.deploy.work.pace import Pace
from driftline.deploy.work.tracking import Tracking
from driftline.engine.errors import MalformedMessage
from driftline.engine.flow.plan import Port
from driftline.engine.keygroups import names_of
from driftline.engine.labels import INFINITY
from driftline.engine.wire.messages import Marker, Message

Send = Callable[[str, Message], None]


class Stages:
    """The stages of one incarnation."""

    def __init__(
        self,
        components: Components,
        assembly: Assembly,
        tracking: Tracking,
        snapshots: Snapshotter,
        pace: Pace,
        send: Send,
    ) -> None:
        plan = components.plan
        self.waiting = components.waiting()
        self.applying = Applying(assembly, pace)
        self.peers = components.peers(assembly)
        self.own_blocks: list[tuple[int, Block]] = []
        """(feeder, block) of the frames that the node has made for itself."""
        self.unfinished = False
        """Whether the last turn that has worked off blocks had no time for the rest of one."""
        self.frames = 0
        """The number of frames made in this incarnation."""
        self._assembly = assembly
        self._alignments = assembly.alignments
        self._tracking = tracking
        self._snapshots = snapshots
        self._send = send
        self._new_id = components.new_id
        self._place = components.place
        self._names = names_of(components.layout)
        self._ports = [plan.of_stage(stage) for stage in range(plan.stages)]
        self._stage_of = [port.stage for port in plan.ports]

    def admit(self, sender: str, feeder: int, block: Block) -> None:
        """A block has come on the channel (sender, feeder)."""
        if (admitted := self._assembly.admit(sender, feeder, block)) is not None:
            self.waiting.add(admitted)

    def work_off(self, stage: int) -> None:
        """Work off the blocks at the ports of a stage, except those that have to wait."""
        if self.own_blocks:
            self._admit_own()
        waiting = self.waiting.take(stage)
        for port in self._ports[stage]:
            if port.number in waiting:
                complete = self._tracking.frontiers[stage - 1]
                now, split = self.waiting.choose(port, waiting[port.number], complete)
                for block in split:
                    block.id = self._new_id()
                    self._tracking.acks.add(stage, block.time, block.id)
                if now:
                    self._apply(port, now, complete)
            if self._alignments and self._alignments[port.number].complete:
                self._end_epoch(port.number)

    def release(self) -> None:
        """Apply elements that gates hold back, below the frontiers of their stages."""
        for port, tokens in self.applying.release(self._tracking.frontiers):
            self._send_on(port)
            self._admit_own()
            self._tracking.acks.join(tokens, ())

    def mark(self, sender: str, marker: Marker) -> None:
        """A marker has come. Raises MalformedMessage if its port has no markers."""
        if marker.port not in self._alignments:
            raise MalformedMessage(f"a marker for port {marker.port}, which takes no markers")
        self._alignments[marker.port].mark((sender, marker.feeder), marker.epoch)

    def _apply(self, port: Port, blocks: list[Block], complete: int) -> None:
        """Push blocks through a port's chain, and send the frames that this makes."""
        number, acks = port.number, self._tracking.acks
        epoch_ends = bool(self._alignments) and self._alignments[number].complete
        tokens, rest = self.applying.apply(port, blocks, complete, to_the_end=epoch_ends)
        if rest:
            self.unfinished = True
            remaining = self.waiting.put_back(number, rest, self._new_id())
            acks.add(port.stage, remaining.time, remaining.id)
        acks.join(tokens, ())
        for block in blocks:
            acks.add(port.stage, block.time, block.id)
            if block.covers and port.front is not None:
                acks.cover(port.front, block.covers, block.roots)
        if self._assembly.outbounds[number]:
            self._send_on(number)

    def _send_on(self, feeder: int) -> None:
        """Send the frames that a chain has made; keep the blocks for this node."""
        for port, node, time, batches in self.applying.leaving.take(feeder):
            id = self._new_id()
            self._count(port, time, id)
            if node == self._place:
                self.own_blocks.append((feeder, Block(port, time, id, batches)))
                continue
            unsent = feeder, port, time, id, batches
            for to, message in self.peers.frame(self._names[node], unsent):
                self._send(to, message)

    def _count(self, port: int, time: int, id: int) -> None:
        self.frames += 1
        self._tracking.acks.add(self._stage_of[port], time, id)

    def _admit_own(self) -> None:
        """Admit the blocks that the node has made for itself."""
        blocks, self.own_blocks = self.own_blocks, []
        for feeder, block in blocks:
            self.admit(self._names[self._place], feeder, block)

    def _end_epoch(self, port: int) -> None:
        """All markers have come to a port: take its changes, and pass the marker on."""
        self._admit_own()
        alignment = self._alignments[port]
        epoch = alignment.epoch
        has_ended_everywhere = self._assembly.end_epoch(port, epoch)
        for after, _ in self._assembly.outbounds[port]:
            for node, name in enumerate(self._names):
                if node == self._place:
                    self._alignments[after].mark((name, port), epoch)
                else:
                    self._send(name, Marker(port, after, epoch))
        for block in alignment.next_epoch():
            self.waiting.add(block)
        if has_ended_everywhere:
            self._snapshots.begin(epoch, INFINITY)
