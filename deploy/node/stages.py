"""Stages of a node: process blocks stage by stage, and send the frames that result.

Within a stage, blocks are processed in label order, so few elements are out of order. The node
pushes the elements of these blocks into the chain of their port until the turn is over. The
remaining elements, the *rest*, become a new block. The acknowledgement of the processed blocks also
announces the id of the rest, so the tracker keeps the frontier below the rest. Therefore a frame,
or a root, may take any number of turns.

All batches that a chain makes for a port on a node, from all blocks processed together, become one
frame. It is tracked under the smallest time of its elements, not under that of the blocks: an
out-of-order element can cause corrections that all have later times. Tracked under these, they do
not hold the frontier at the time of the element.

Batches for a port on the same node are serialised, too: functions see the same types wherever their
input comes from.

A *gate* holds the elements of a port back until the frontier has passed their times. The *upstream*
of a block is the port whose chain made it.

Takes: blocks, markers, frontiers. Gives: frames, markers, and acknowledgements to the tracking.
Invariants: the id of a frame is acknowledged together with the ids of all frames sent because of
it; elements of blocks that are processed together are applied in order of time; an output is in
exactly one frame.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from driftline.deploy.node.backpressure import TurnBudget
from driftline.deploy.node.component_factory import ComponentFactory
from driftline.deploy.node.input_queue import (
    Block,
    ElementBatch,
    UnsentFrame,
    in_label_order,
    min_times_from,
    to_frame,
)
from driftline.deploy.node.pipeline import FrontierHold, NodePipeline, Send, Snapshotter
from driftline.deploy.node.tracking import NOTHING, Acknowledged, Tracking
from driftline.engine.flow.plan import Port
from driftline.engine.keygroups import node_names
from driftline.engine.labels import INFINITY
from driftline.engine.operators.timed import TimedStep
from driftline.engine.wire.codec import pack_rows
from driftline.engine.wire.messages import Acknowledge, Frame, Marker, Outgoing

EMPTY_ACKNOWLEDGE = Acknowledge((), (), 0)
"""An empty acknowledgement."""


class Stages:
    """Stages of a node in one incarnation; `send`: sends a message to a receiver."""

    def __init__(
        self,
        factory: ComponentFactory,
        pipeline: NodePipeline,
        tracking: Tracking,
        snapshots: Snapshotter,
        budget: TurnBudget,
        send: Send,
    ) -> None:
        plan = factory.plan
        self.input_queue = factory.make_input_queue()
        self.peers = Peers(factory.others, None if factory.ordered else pipeline.defer_frame)
        self.own_blocks: list[tuple[int, Block]] = []
        """(upstream, block) of the frames that the node made for itself."""
        self.unfinished = False
        """Whether the last turn left work that can continue at once: the rest of a block, or
        messages of an iteration."""
        self.gates_due = False
        """Whether elements below a frontier may wait at gates or in operators with timers."""
        self.frames = 0
        """Number of frames made in this incarnation."""
        self._pipeline = pipeline
        self._has_markers = factory.policy.has_markers
        self._tracking = tracking
        self._snapshots = snapshots
        self._budget = budget
        self._send = send
        self._new_id = factory.new_id
        self._node_index = factory.position
        """Position of this node in the layout."""
        self._names = node_names(factory.layout)
        self._ports = [plan.ports_of_stage(stage) for stage in range(plan.stages)]
        self._stage_of = [port.stage for port in plan.ports]
        self._first_timed = plan.fronts + self._node_index
        """Number of this node's first operator with timers: the tracker numbers all fronts and
        operators with timers, which report the times that they have covered."""
        self._entries = pipeline.chains.entries
        """Port -> the first step of its chain."""
        self._batches: dict[tuple[int, int, int], list[ElementBatch]] = {}
        """(upstream, port, node) -> packed outputs that are in no frame yet."""

    def admit(self, sender: str, upstream: int, block: Block) -> None:
        """Accept a block from the channel (sender, upstream)."""
        if (admitted := self._pipeline.admit(sender, upstream, block)) is not None:
            self.input_queue.add(admitted)

    def mark(self, sender: str, marker: Marker) -> None:
        """Accept a marker. Raises MalformedMessage if its port takes no markers."""
        self._pipeline.mark(sender, marker)

    def process_stage(self, stage: int) -> None:
        """Process the blocks at the ports of a stage, except those that have to wait."""
        if self.own_blocks:
            self._admit_own()
        if not (self._has_markers or self.input_queue.has_blocks_at(stage)):
            return
        blocks = self.input_queue.take(stage)
        for port in self._ports[stage]:
            if port.number in blocks:
                # Undoing a message of an iteration also undoes the messages that it caused, round
                # after round. So a port that loops applies only the smallest unfinished time.
                frontiers, loops = self._tracking.frontiers, port.vertex.operator.loops
                complete = frontiers[stage] + 1 if loops else frontiers[stage - 1]
                ready, split_off = self.input_queue.choose(port, blocks[port.number], complete)
                for block in split_off:
                    block.id = self._new_id()
                    self._tracking.acks.add(stage, block.time, block.id)
                if ready:
                    self._process_blocks(port, ready, complete)
            if self._has_markers and self._pipeline.ends_epoch(port.number):
                self._end_epoch(port.number)

    def release(self) -> None:
        """Apply the elements below a frontier that wait at gates and in operators with timers.

        From each gate and operator, apply as many elements as fit into the turn.
        """
        self.gates_due = False
        budget, frontiers = self._budget, self._tracking.frontiers
        for port, gate in self._pipeline.gates.items():
            frontier = frontiers[gate.stage]
            gate.advance(frontier)
            if not gate.has_released:
                continue
            budget_port = len(self._entries) + port  # waiting elements have a budget of their own
            batch, holds = gate.take(budget.elements_left(budget_port, frontier - 1))
            budget.begin_batch(budget_port, batch)
            self._entries[port].push(*batch.elements())
            budget.end_batch(budget_port, len(batch.labels))
            self._send_frames(port)
            self._admit_own()
            self._tracking.acks.join(holds)
            self.gates_due |= gate.has_released
        for number, (port, step) in enumerate(self._pipeline.timed_steps.items()):
            frontier, done_before = self._tracking.arrived[self._stage_of[port]], step.done_below
            if step.done_below < frontier:
                self._apply_timed(port, step, frontier)
                coverer = self._first_timed + number * len(self._names)
                self._tracking.acks.join(covered=[(coverer, done_before, step.done_below)])
                self.gates_due |= step.done_below < frontier

    def _apply_timed(self, port: int, step: TimedStep, frontier: int) -> None:
        """Apply as many elements of an operator with timers as fit into the turn."""
        budget = self._budget
        budget_port = len(self._entries) + port  # waiting elements have a budget of their own
        taken = step.take(frontier, budget.elements_left(budget_port, frontier - 1))
        budget.begin_batch(budget_port, ElementBatch(*taken, signs=None))
        step.apply_taken()
        budget.end_batch(budget_port, len(taken[0]))
        self._send_frames(port)
        self._admit_own()

    def _process_blocks(self, port: Port, blocks: list[Block], complete: int) -> None:
        """Push blocks through a port's chain, acknowledge them, and send the resulting frames."""
        number, acks = port.number, self._tracking.acks
        epoch_ends = self._has_markers and self._pipeline.ends_epoch(number)
        holds, rest = self._apply(number, blocks, complete, to_the_end=epoch_ends)
        if rest:
            self.unfinished = True
            remaining = self.input_queue.put_back(number, rest, self._new_id())
            acks.add(port.stage, remaining.time, remaining.id)
        if holds:
            acks.join(holds)
        for block in blocks:
            acks.add(port.stage, block.time, block.id)
            if block.interval and port.front is not None:
                acks.cover(port.front, block.interval, block.roots)
        if event_times := self._pipeline.chains.event_times:
            acks.join(event_times=event_times)
            event_times.clear()
        if self._pipeline.outbounds[number]:
            self._send_frames(number)

    def _apply(
        self, number: int, blocks: list[Block], complete: int, to_the_end: bool
    ) -> tuple[list[FrontierHold], list[ElementBatch]]:
        """Push the elements of blocks into a port's chain, or its gate, in label order.

        `complete`: see `InputQueue.choose`; `to_the_end`: apply all elements, even if the turn
        exceeds its time. Return the new holds of the gate, and the batches that remain. Raises
        MalformedMessage if payloads cannot be decoded.
        """
        pipeline, budget = self._pipeline, self._budget
        pipeline.begin_blocks(number, blocks)
        gate, push = pipeline.gates.get(number), self._entries[number].push
        batches = in_label_order(blocks)
        next_times = min_times_from(batches[1:]) if len(batches) > 1 else []
        holds: list[FrontierHold] = []
        for index, batch in enumerate(batches):
            if index:
                if budget.is_over and not to_the_end:
                    return holds, batches[index:]
                # The outputs of the previous batch have to be packed before the port is closed.
                self._pack(number)
                pipeline.close(number, min(next_times[index - 1], complete))
            rest: ElementBatch | None = batch
            while rest is not None:
                first, rest = budget.cut(number, rest)
                budget.begin_batch(number, first)
                if gate is None:
                    push(*first.elements())
                else:
                    holds += gate.push(*first.elements())
                budget.end_batch(number, len(first.labels))
                if rest is not None and not to_the_end:
                    return holds, [rest, *batches[index + 1 :]]
        return holds, []

    # Outputs.

    def _send_frames(self, upstream: int) -> None:
        """Send the frames that a chain made; queue those for this node in `own_blocks`."""
        for port, node, time, batches in self._take(upstream):
            id = self._new_id()
            self._count(port, time, id)
            if node == self._node_index:
                self.unfinished |= port == upstream  # an iteration: messages for the same operator
                self.own_blocks.append((upstream, Block(port, time, id, batches)))
                continue
            unsent = upstream, port, time, id, batches
            for to, message in self.peers.add_frame(self._names[node], unsent):
                self._send(to, message)

    def _pack(self, upstream: int) -> None:
        """Move the new outputs of a chain to `_batches`, packed."""
        for port, outbounds in self._pipeline.outbounds[upstream]:
            for node, outbound in enumerate(outbounds):
                for (labels, values, signs), packed in outbound.take():
                    batch = ElementBatch(labels, packed or pack_rows(values), signs)
                    self._batches.setdefault((upstream, port, node), []).append(batch)

    def _take(self, upstream: int) -> Iterator[tuple[int, int, int, list[ElementBatch]]]:
        """Make frames of a chain's outputs; yield (port, node, tracking time, batches) of each."""
        self._pack(upstream)
        for key in [key for key in self._batches if key[0] == upstream]:
            batches = self._batches.pop(key)
            yield (*key[1:], min(batch.first for batch in batches), batches)

    def _count(self, port: int, time: int, id: int) -> None:
        """Count a new frame, and add its id to the acknowledgement."""
        self.frames += 1
        self._tracking.acks.add(self._stage_of[port], time, id)

    def _admit_own(self) -> None:
        """Admit the blocks that the node made for itself."""
        blocks, self.own_blocks = self.own_blocks, []
        for upstream, block in blocks:
            self.admit(self._names[self._node_index], upstream, block)

    def _end_epoch(self, port: int) -> None:
        """End the epoch of a port: capture its changes and forward the marker."""
        self._admit_own()
        markers, blocks, snapshot = self._pipeline.end_epoch(port)
        for to, marker in markers:
            self._send(to, marker)
        for block in blocks:
            self.input_queue.add(block)
        if snapshot:
            self._snapshots.begin(snapshot, INFINITY)


class Peers:
    """Queue of a node's messages to other nodes: frames and, with label order, acknowledgements.

    The acknowledgement of a stage travels in the last frame that the stage makes for a node, which
    saves a message; a node that gets no frame receives an `Acknowledge`. Without label order nodes
    need no acknowledgements, and frames leave at once unless `defer` queues them (see
    `NodePipeline.defer_frame`). Invariant: frames and acknowledgements leave in the order in which
    they were made.
    """

    def __init__(
        self, names: Iterable[str], defer: Callable[[str, Frame], bool] | None = None
    ) -> None:
        self._names = tuple(names)
        self._defer = defer
        self._waiting_frames: dict[str, UnsentFrame] = {}
        """Node -> the last frame for it, which waits for the acknowledgement of its stage."""

    @property
    def has_unsent_frames(self) -> bool:
        """Whether a frame waits for the acknowledgement that it will carry."""
        return bool(self._waiting_frames)

    def add_frame(self, to: str, unsent: UnsentFrame) -> Outgoing:
        """Queue a new frame for node `to`. Return the previously queued frame, if any, to send.

        Without label order, return the new frame itself unless `defer` queues it.
        """
        if self._defer is not None:
            frame = to_frame(unsent)
            return [] if self._defer(to, frame) else [(to, frame)]
        previous = self._waiting_frames.get(to)
        self._waiting_frames[to] = unsent
        return [] if previous is None else [(to, to_frame(previous))]

    def acknowledge(self, acknowledged: Acknowledged) -> Outgoing:
        """Return the messages that carry this acknowledgement to the peers.

        These are the queued frames, and an `Acknowledge` for each other peer. If the
        acknowledgement is empty, return only the frames.
        """
        messages: Outgoing = []
        for to in self._names:
            unsent = self._waiting_frames.pop(to, None)
            if unsent is not None:
                messages.append((to, to_frame(unsent, acknowledged)))
            elif acknowledged != NOTHING:
                cells, covered, event_times = acknowledged
                messages.append((to, Acknowledge(cells, covered, 0, event_times)))
        return messages

    def empty_acknowledgements(self) -> Outgoing:
        """Return empty messages: their numbers show a gap to a receiver that missed a message."""
        return [(to, EMPTY_ACKNOWLEDGE) for to in self._names]
