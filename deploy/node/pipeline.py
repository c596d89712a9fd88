"""Pipeline of a node in one incarnation: chains, gates, barrier, and snapshots of its state.

`Snapshotter` writes the node's parts of snapshots: it captures all changes in one step and encodes
them over several turns.

`BufferingGate` makes the elements at a port wait for the frontier.

`NodePipeline` cuts snapshots by label; its subclasses (`deploy.node.unordered`) cut them by
markers or productions. `ComponentFactory` picks the class.

Takes: blocks, frontiers, and requests for snapshots. Gives: captures of the state, snapshot
metadata, and messages to send. Invariant: each final change is in exactly one capture.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from operator import itemgetter
from typing import NamedTuple

from driftline.barrier.barrier import Barrier
from driftline.barrier.ordered import OrderedBarrier
from driftline.deploy.node.input_queue import Block, ElementBatch
from driftline.deploy.node.tracking import Acks
from driftline.engine.errors import MalformedMessage
from driftline.engine.event_time import Clock
from driftline.engine.flow.chains import Chains
from driftline.engine.flow.plan import Plan
from driftline.engine.labels import Label
from driftline.engine.operators.keyed import Keyed
from driftline.engine.operators.operator import Vertex
from driftline.engine.operators.outputs import Outbound
from driftline.engine.operators.steps import Signs, Values
from driftline.engine.operators.timed import TimedStep
from driftline.engine.operators.windowed import drops_late
from driftline.engine.snapshots.jobs import Capture, MergeParts, StoreSnapshot
from driftline.engine.snapshots.merging import restore_in_steps
from driftline.engine.state.table import StateTable
from driftline.engine.texts import format_time
from driftline.engine.wire.codec import pack
from driftline.engine.wire.label_columns import Labels
from driftline.engine.wire.messages import Frame, Marker, Message, Outgoing, Prepared, PrepareFailed
from driftline.engine.wire.role import IOJob

Send = Callable[[str, Message], None]
"""Function that sends a message to a receiver."""


class EpochEnd(NamedTuple):
    """Consequences of the end of an epoch at a port."""

    markers: Outgoing
    """Markers to send to other nodes."""
    blocks: list[Block]
    """Blocks that waited for the end of the epoch."""
    snapshot: int
    """Number of the snapshot to begin if the epoch has now ended at all ports; else 0."""


@dataclass(slots=True)
class NodePipeline:
    """Chains, gates and barrier of one incarnation, with snapshots cut by label."""

    plan: Plan
    barrier: Barrier
    chains: Chains
    keyed: dict[str, Keyed]
    """Name of a keyed operator -> its step."""
    gates: dict[int, BufferingGate]
    """Port -> gate in front of its chain; empty unless the ordering is buffered."""
    clock: Clock | None = None
    """Watermarks of the sources; None if no operator needs them."""
    timed_steps: dict[int, TimedStep] = field(init=False)
    """Port -> its operator with timers, which waits for the frontier; in the order of ports."""
    _dropping: list[TimedStep] = field(init=False)
    """Window operators whose late elements are dropped: no `.late` stream takes them."""
    outbounds: dict[int, list[tuple[int, list[Outbound]]]] = field(init=False)
    """Feeder -> (port that it feeds, one outbound per node)."""
    _late: int = field(default=0, init=False)
    """Number of late elements at the start of the incarnation, as counted in the snapshot."""
    storing: bool = False
    """Whether a production is being written; frames and outputs wait for it."""

    def __post_init__(self) -> None:
        self.timed_steps = {
            port: step
            for port, step in enumerate(self.chains.entries)
            if isinstance(step, TimedStep)
        }
        vertices = self.plan.flow.vertices
        self._dropping = [s for s in self.timed_steps.values() if drops_late(s.vertex, vertices)]
        self.outbounds = {port.number: [] for port in self.plan.ports}
        for (upstream, port), outbounds in self.chains.outbounds.items():
            self.outbounds[upstream].append((port, outbounds))

    def load(self, segments: Iterable[bytes], start: int) -> Iterator[None]:
        """Restore the states from a snapshot's segments in steps; yield after each step.

        `start`: the time of the snapshot. Raises SnapshotDamaged.
        """
        return restore_in_steps(self.tables, segments)

    def admit(self, sender: str, upstream: int, block: Block) -> Block | None:
        """Accept a received block. Return what to queue at its port: all of it, a part, or None.

        `sender`, `upstream`: the channel on which the block arrived.
        """
        return block

    def begin_blocks(self, port: int, blocks: list[Block]) -> None:
        """Record that the elements of these blocks are about to be applied at a port."""

    def defer_frame(self, to: str, frame: Frame) -> bool:
        """Queue a new frame for node `to` if it may not leave yet. Return whether it was queued."""
        return False

    def end_turn(self, acks: Acks, unfinished: bool = False) -> int:
        """End a turn. Return the number of the snapshot to begin now; 0 for none.

        `acks`: acknowledgement of the turn's work; `unfinished`: see `Stages.unfinished`.
        """
        return 0

    def progress(self, processed: int) -> Outgoing:
        """Record that all nodes processed all elements below a time. Return messages to send."""
        self.barrier.record_processed(processed)
        return []

    def stored(self, answer: Prepared | PrepareFailed) -> Outgoing:
        """Handle the result of writing a part. Return messages to send."""
        return [("master", answer)]

    def close(self, port: int, frontier: int) -> None:
        """Close a port below the frontier: no element with a smaller time arrives there."""
        vertex = self.plan.ports[port].vertex
        if port in self.gates or port in self.timed_steps or vertex.operator.loops:
            return  # elements below the frontier may still wait there, or return to the port
        step = self.keyed.get(vertex.name)
        if step is not None:
            step.close(frontier)

    def settle(self, frontier: int) -> None:
        """Move the state changes made by elements below the frontier to the changelogs.

        Precondition: these changes are final, and each future snapshot has at least this time.
        """
        self.barrier.trim_history(frontier)
        if self.clock is not None:
            self.clock.forget(frontier)
        for step in self.keyed.values():
            step.settle(frontier)

    def encode_early(self, rows: int) -> bool:
        """Encode up to `rows` changed rows of each state that has many, ahead of the next snapshot.

        Return whether any were encoded.
        """
        encoded = [step.changelog.encode_early(rows) for step in self.keyed.values()]
        return any(encoded)

    def capture(self, time: int) -> Capture:
        """Capture all changes below a time. Precondition: all outputs below it are delivered."""
        capture = Capture()
        for step in self.keyed.values():
            step.settle(time, exactly=True)
            capture.take(step.changelog)
        return capture

    @property
    def tables(self) -> dict[str, StateTable]:
        """State table of each operator, by name."""
        return {name: step.table for name, step in self.keyed.items()}

    def figures(self) -> dict[str, int]:
        """Return the sums of the counters of all keyed operators."""
        keyed = self.keyed.values()
        return {
            "elements": sum(step.elements for step in keyed),
            "out_of_order": sum(step.out_of_order for step in keyed),
            "reapplied": sum(step.reapplied for step in keyed),
            "keys": sum(len(step.table) for step in keyed),
            "too_late": sum(step.too_late for step in self.timed_steps.values()),
        }

    def take_dropped(self) -> list[tuple[Vertex, int]]:
        """Return (operator, number) of late elements since the last call."""
        return [(step.vertex, n) for step in self._dropping if (n := step.take_dropped())]

    def meta(self, time: int) -> bytes:
        """Return the metadata of a part: a checksum of this node's outputs below `time`."""
        assert isinstance(self.barrier, OrderedBarrier)
        return pack(self.barrier.checksum_before(time))

    def begin(self, start: int, event_times: Sequence[tuple[int, int]], late: int = 0) -> None:
        """Begin to process times from `start` on.

        `event_times`: `Clock.as_of` of time `start`; `late`: the number from which
        `late_before` counts on.
        """
        self._late = late
        if self.clock is not None:
            self.clock.restore(event_times, start)
        for step in self.timed_steps.values():
            step.done_below = start

    def late_before(self, time: int) -> int:
        """Return the number of elements below a time that were dropped because they were late.

        Only the sum over all nodes is meaningful: it is a function of the labelled input. The first
        node adds the number that the snapshot contains, for all nodes. Precondition: no later time
        is settled.
        """
        return self._late + sum(step.late_before(time) for step in self._dropping)

    def event_times(self, time: int) -> tuple[tuple[int, int], ...]:
        """Return the states of the sources (`Clock.as_of`) as of a time; () if the flow needs none.

        Precondition: no later time is settled.
        """
        return () if self.clock is None else self.clock.as_of(time)

    @property
    def durable_production(self) -> int | None:
        """Number of the newest durable production; None under other policies."""
        return None

    def may_prepare(self) -> bool:
        """Return whether the captured part may be written now."""
        return True

    @property
    def unsaved_bytes(self) -> int:
        """Bytes of changes and outputs that wait for the next snapshot."""
        return sum(step.changelog.bytes for step in self.keyed.values())

    @property
    def waits_for_snapshot(self) -> bool:
        """Whether the next snapshot needs no further blocks from this node."""
        return True

    def mark(self, sender: str, marker: Marker) -> None:
        """Accept a marker.

        Raises MalformedMessage if the policy has no markers, or the flow has no such port.
        """
        raise MalformedMessage(f"a marker for port {marker.port}, which takes no markers")

    def ends_epoch(self, port: int) -> bool:
        """Return whether a port has received the marker on all its channels."""
        return False

    def end_epoch(self, port: int) -> EpochEnd:
        """End the epoch of a port. Precondition: `ends_epoch`."""
        raise AssertionError("only policies with markers have epochs")

    def merge_job(self, number: int, previous: int) -> MergeParts:
        """Return the merge job to do after snapshot `number` was committed.

        `previous`: the committed snapshot before it.
        """
        return MergeParts(number, previous)

    def validate(self) -> None:
        """Assert the invariants of the barrier and the operators."""
        self.barrier.validate()
        for step in self.keyed.values():
            step.validate()


class Snapshotter:
    """Writer of the node's snapshot parts in one incarnation.

    Takes: requests for snapshots (`Prepare`, or the end of an epoch or of a turn), results of
    writes. Gives: `StoreSnapshot` jobs, then `Prepared` or `PrepareFailed`. If a write fails, its
    changes go into the next part. Invariant: every final change is in exactly one durable part, and
    parts are written in order.
    """

    def __init__(self, pipeline: NodePipeline, incarnation: int) -> None:
        self._pipeline = pipeline
        self._incarnation = incarnation
        self._capture: Capture | None = None
        """Captured changes of the current snapshot, until all are encoded."""
        self._number = 0
        """Number of the current snapshot."""
        self.requested_number = self.answered_number = 0
        """Number of the snapshot that the master requested last; of the last one answered."""
        self._meta = b""
        self._event_times: tuple[tuple[int, int], ...] = ()
        self._late = 0
        self._storing: StoreSnapshot | None = None
        """Job that writes the encoded part."""
        self.stored_bytes = self.last_bytes = 0
        """Bytes of all parts written in this incarnation; of the last one."""
        self._unstored: dict[int, bytes] = {}
        """Key group -> segment of a part whose write failed; the next part includes it."""
        self.unstored_bytes = 0
        """Bytes of the segments in `_unstored`."""

    def prepare(self, number: int, time: int) -> Outgoing:
        """Begin the requested part. Under strong productions, return the answer at once instead."""
        self.requested_number = number
        production = self._pipeline.durable_production
        if production is not None:
            self.answered_number = number
            return [("master", Prepared(number, production))]
        self.begin(number, time)
        return []

    def refuse(self, number: int, time: int) -> Outgoing:
        """Refuse a snapshot as of `time`, as later changes are settled. Return the answer."""
        self.requested_number = self.answered_number = number
        reason = f"changes from {format_time(time)} on were settled while the master was silent"
        return [("master", PrepareFailed(number, reason))]

    def begin(self, number: int, time: int) -> None:
        """Capture all changes below a time; later changes belong to the next part."""
        assert self._capture is None, "one snapshot at a time"
        self._number = number
        self._meta = self._pipeline.meta(time)
        self._event_times = self._pipeline.event_times(time)
        self._late = self._pipeline.late_before(time)
        self._capture = self._pipeline.capture(time)

    def step(self) -> tuple[bool, StoreSnapshot | None]:
        """Encode a chunk. Return (whether chunks remain, the job that writes the part).

        The job is None until all chunks are encoded and the part may be written (`may_prepare`).
        """
        if self._capture is None:
            return False, None
        if self._capture.step():
            return True, None
        if not self._pipeline.may_prepare():
            return False, None
        segments = self._capture.segments
        for group, segment in self._unstored.items():
            segments[group] = segment + segments.get(group, b"")
        self._unstored, self.unstored_bytes = {}, 0
        self._capture = None
        meta, self._meta = self._meta, b""
        self._storing = StoreSnapshot(self._number, segments, meta, self._incarnation)
        return False, self._storing

    def stored(self, job: IOJob, result: object) -> Prepared | PrepareFailed | None:
        """Handle the result of the job that writes the part. Return the answer to the master.

        Do nothing, and return None, for any other job.
        """
        if not isinstance(job, StoreSnapshot) or job is not self._storing:
            return None
        self._storing = None
        self.answered_number = job.number
        if isinstance(result, Exception):
            self._unstored = job.segments
            self.unstored_bytes = sum(map(len, job.segments.values()))
            return PrepareFailed(job.number, str(result))
        self.last_bytes = sum(map(len, job.segments.values()))
        self.stored_bytes += self.last_bytes
        return Prepared(job.number, 0, self._event_times, self._late)


FrontierHold = tuple[int, int, int]
"""(stage, time, id). It holds the frontier of the stage back. The tracker receives the id when
elements of the time begin to wait at a gate, and again, which cancels it (XOR), when all are
applied."""


class BufferingGate:
    """Gate in front of a chain: the buffered ordering, a common baseline in the literature.

    Elements wait until the frontier of their stage passes them, and are then applied in label
    order. No element is ever undone; the cost is one more round of acknowledgements. The frames of
    waiting elements are acknowledged at once, since the frontier of their stage could never pass
    them otherwise. Invariant: for each time with waiting elements exactly one *hold* is in a cell
    of the next stage; it stands for their outputs.
    """

    def __init__(self, stage: int, new_id: Callable[[], int]) -> None:
        self.stage = stage
        self.new_id = new_id
        self.waiting: dict[int, tuple[FrontierHold, list[tuple[Label, object]]]] = {}
        """Time -> its hold, and the (label, payload) pairs of its elements in order of arrival."""
        self.times: list[int] = []
        """Heap of the times in `waiting`."""
        self.released = 0
        """Time below which elements are released. Precondition of `push`: none is below it."""

    def push(self, labels: Labels, values: Values, signs: Signs) -> list[FrontierHold]:
        """Queue a batch. Return the holds of times that had no waiting elements."""
        assert signs is None, "a tombstone in buffered order, which undoes nothing"
        holds = []
        for label, value in zip(labels, values, strict=True):
            time = label[0]
            assert time >= self.released, (
                f"an element of time {time}, but the gate has released all below {self.released}"
            )
            if time not in self.waiting:
                hold = (self.stage + 1, time, self.new_id())
                self.waiting[time] = hold, []
                heappush(self.times, time)
                holds.append(hold)
            self.waiting[time][1].append((label, value))
        return holds

    def advance(self, frontier: int) -> None:
        """Release the elements below a frontier of the stage."""
        self.released = max(self.released, frontier)

    @property
    def has_released(self) -> bool:
        """Whether released elements wait."""
        return bool(self.times) and self.times[0] < self.released

    def take(self, limit: int) -> tuple[ElementBatch, list[FrontierHold]]:
        """Remove released elements, at most `limit`, in label order.

        Return them, and the holds of the times that now have no waiting elements. Precondition:
        `has_released`.
        """
        holds = []
        elements: list[tuple[Label, object]] = []
        while self.has_released and limit:
            hold, of_time = self.waiting[self.times[0]]
            of_time.sort(key=itemgetter(0))
            elements += of_time[:limit]
            if len(of_time) > limit:
                del of_time[:limit]
                break
            limit -= len(of_time)
            del self.waiting[heappop(self.times)]
            holds.append(hold)
        labels, values = zip(*elements, strict=True)
        return ElementBatch(list(labels), list(values), None), holds
