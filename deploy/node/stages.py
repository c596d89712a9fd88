"""Stages: what has come to a node is worked off stage by stage, and what that makes is sent.

Within a stage in label order, so that few elements come late. What is for the node itself comes to
a later stage of the same turn, without having left.

Invariant: an id is acknowledged in the same batch as the ids of all frames sent because of it.
"""

from __future__ import annotations

from collections.abc import Callable

from driftline.deploy.node.parts import Parts
from driftline.deploy.node.snapshotter import Snapshotter
from driftline.deploy.work.applying import Applying
from driftline.deploy.work.assembly import Assembly
from driftline.deploy.work.blocks import Block
from driftline.deploy.work.pace import Pace
from driftline.deploy.work.tracking import Tracking
from driftline.engine.errors import MalformedMessage
from driftline.engine.flow.plan import Port
from driftline.engine.labels import INFINITY
from driftline.engine.wire.messages import Marker, Message

Send = Callable[[str, Message], None]


class Stages:
    """The stages of one incarnation."""

    def __init__(
        self,
        parts: Parts,
        assembly: Assembly,
        tracking: Tracking,
        snapshots: Snapshotter,
        pace: Pace,
        send: Send,
    ) -> None:
        plan = parts.plan
        self.waiting = parts.waiting()
        self.applying = Applying(assembly, pace)
        self.peers = parts.peers(assembly)
        self.own: list[tuple[int, Block]] = []
        """(feeder, elements) of what does not leave the node."""
        self.rest = False
        """Whether there was no time for some of what waited."""
        self.frames = 0
        """Frames made so far, in this incarnation."""
        self._assembly = assembly
        self._alignments = assembly.alignments
        self._tracking = tracking
        self._snapshots = snapshots
        self._send = send
        self._new_id = parts.new_id
        self._index = parts.index
        self._names = [f"node-{node}" for node in range(parts.nodes)]
        self._ports = [plan.of_stage(stage) for stage in range(plan.stages)]
        self._stage_of = [port.stage for port in plan.ports]

    def admit(self, sender: str, feeder: int, block: Block) -> None:
        """Let in what has come."""
        if (admitted := self._assembly.admit(sender, feeder, block)) is not None:
            self.waiting.add(admitted)

    def work_off(self, stage: int) -> None:
        """Work off what waits at the ports of a stage and what may be worked off now."""
        if self.own:
            self._admit_own()
        waiting = self.waiting.take(stage)
        for port in self._ports[stage]:
            if port.number in waiting:
                complete = self._tracking.frontiers[stage - 1]
                here, parted = self.waiting.choose(port, waiting[port.number], complete)
                for block in parted:  # the rest of a block: under way in its own name now
                    block.id = self._new_id()
                    self._tracking.acks.add(stage, block.time, block.id)
                if here:
                    self._apply(port, here, complete)
            if self._alignments and self._alignments[port.number].complete:
                self._end_epoch(port.number)

    def release(self) -> None:
        """Let through what gates hold back, as far as frontiers have passed it."""
        for port, tokens in self.applying.release(self._tracking.frontiers):
            self._send_on(port)
            self._admit_own()
            self._tracking.acks.join(tokens, ())

    def mark(self, sender: str, marker: Marker) -> None:
        """An epoch has ended on a channel. Raises MalformedMessage."""
        if marker.port not in self._alignments:
            raise MalformedMessage(f"a marker for port {marker.port}, which has no epochs")
        self._alignments[marker.port].mark((sender, marker.feeder), marker.epoch)

    def _apply(self, port: Port, blocks: list[Block], complete: int) -> None:
        """Let blocks through a port's segment, and send on what that makes."""
        number, acks = port.number, self._tracking.acks
        epoch_ends = bool(self._alignments) and self._alignments[number].complete
        tokens, rest = self.applying.apply(port, blocks, complete, to_the_end=epoch_ends)
        if rest:
            self.rest = True
            left = self.waiting.put_back(number, rest, self._new_id())
            acks.add(port.stage, left.time, left.id)
        acks.join(tokens, ())
        for block in blocks:
            acks.add(port.stage, block.time, block.id)
            if block.covers and port.front is not None:
                acks.cover(port.front, block.covers, block.roots)
        if self._assembly.outbounds[number]:
            self._send_on(number)

    def _send_on(self, feeder: int) -> None:
        """Send what a segment has made."""
        for port, node, time, batches in self.applying.leaving.take(feeder):
            id = self._new_id()
            self._count(port, time, id)
            if node == self._index:
                self.own.append((feeder, Block(port, time, id, batches)))
                continue
            made = feeder, port, time, id, batches
            for to, message in self.peers.frame(self._names[node], made):
                self._send(to, message)

    def _count(self, port: int, time: int, id: int) -> None:
        self.frames += 1
        self._tracking.acks.add(self._stage_of[port], time, id)

    def _admit_own(self) -> None:
        """Let in what does not leave the node."""
        own, self.own = self.own, []
        for feeder, block in own:
            self.admit(self._names[self._index], feeder, block)

    def _end_epoch(self, port: int) -> None:
        """All markers have come to a port: cut its state, pass the marker on."""
        self._admit_own()
        alignment = self._alignments[port]
        epoch = alignment.epoch
        whole = self._assembly.end_epoch(port, epoch)
        for after, _ in self._assembly.outbounds[port]:
            for node, name in enumerate(self._names):
                if node == self._index:
                    self._alignments[after].mark((name, port), epoch)
                else:
                    self._send(name, Marker(port, after, epoch))
        for block in alignment.next_epoch():
            self.waiting.add(block)
        if whole:
            self._snapshots.begin(epoch, INFINITY)
