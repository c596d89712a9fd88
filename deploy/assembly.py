"""What a node runs in one incarnation: segments, gates, barrier, and how snapshots are cut.

This is the only place where a policy becomes parts; the node that works with them does not ask
which policy it is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from barrier.barrier import NOTHING, Barrier
from barrier.epochs import EpochBarrier
from barrier.immediate import ImmediateBarrier
from barrier.ordered import OrderedBarrier
from deploy.blocks import Block
from deploy.gates import BufferingGate, Gate
from engine.alignment import Alignment
from engine.codec import pack, unpack
from engine.errors import SnapshotDamaged
from engine.flow import Vertex
from engine.keyed import Arrival, Keyed
from engine.keygroups import GroupCache, OwnerCache, owned_by
from engine.operators import Failures, Outbound, Segments, Step
from engine.plan import Plan
from engine.policy import Output, Policy, SnapshotCut
from engine.snapshots import Capture, EarlyEncoder
from engine.speculative import Speculative
from engine.state import StateTable

NewId = Callable[[], int]


@dataclass(slots=True)
class Assembly:
    """The parts of a node, by label cut; the epochs' variant is below."""

    plan: Plan
    barrier: Barrier
    segments: Segments
    keyed: dict[str, Keyed]
    gates: list[Gate]
    alignments: dict[int, Alignment[Block]] = field(default_factory=dict)
    leaving: dict[int, list[tuple[int, list[Outbound]]]] = field(init=False)
    """feeder -> (port, its outbounds per node)"""
    encoders: list[EarlyEncoder] = field(init=False)

    def __post_init__(self) -> None:
        self.leaving = {port.number: [] for port in self.plan.ports}
        for (feeder, port), outbounds in self.segments.outbounds.items():
            self.leaving[feeder].append((port, outbounds))
        self.encoders = [EarlyEncoder(name, step.table) for name, step in self.keyed.items()]

    def enter(self, port: int) -> None:
        """A port's segment is about to work."""

    def settle(self, frontier: int) -> None:
        """Elements below the frontier are final."""
        for step in self.keyed.values():
            step.settle(frontier)

    def encode_early(self, rows: int) -> bool:
        """Do a little of what the next snapshot will need. Returns whether there was anything."""
        done = [encoder.step(rows) for encoder in self.encoders]
        return any(done)

    def capture(self, time: int) -> Capture:
        """Begin to write the state as of a time, below which everything is delivered."""
        capture = Capture()
        for name, step in self.keyed.items():
            step.settle(time, exactly=True)
            capture.take(name, step.table)
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

    def may_prepare(self) -> bool:
        """Whether nothing but the disk stands between the snapshot and its being prepared."""
        return True

    def end_epoch(self, port: int, epoch: int) -> bool:
        """A port's epoch is over. Returns whether it is for the whole node."""
        raise AssertionError("there are no epochs in this policy")

    def commit(self, number: int) -> None:
        """A snapshot is valid."""

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

    def enter(self, port: int) -> None:
        if isinstance(self.barrier, EpochBarrier):
            self.barrier.segment = port

    def capture(self, time: int) -> Capture:
        capture, self.taken = self.taken, Capture()
        return capture

    def meta(self, time: int) -> bytes:
        if isinstance(self.barrier, EpochBarrier):
            return pack(self.barrier.pre_commit(self.number))
        self.to_deliver = self.barrier.moved_to + bool(self.barrier.ready)
        return pack(())

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
            self.taken.take(vertex.name, step.table)
        if isinstance(self.barrier, EpochBarrier):
            self.barrier.seal(port, epoch)
        self.ended.add(port)
        if len(self.ended) < len(self.plan.ports):
            return False
        self.ended.clear()
        return True

    def commit(self, number: int) -> None:
        if isinstance(self.barrier, EpochBarrier):
            self.barrier.commit(number)


def assemble(
    plan: Plan,
    policy: Policy,
    index: int,
    nodes: int,
    new_id: NewId,
    *,
    dead_letters: bool = False,
    start: int = 0,
    number: int = 0,
    meta: bytes = b"",
) -> Assembly:
    """The parts of node `index` of `nodes`, as of a snapshot. Raises SnapshotDamaged."""
    groups = owned_by(index, nodes, plan.flow.groups)
    name = f"barrier-{index}"
    about = unpack(meta) if meta else None
    barrier: Barrier
    if policy.output is Output.FRONTIER:
        if not isinstance(about, int | None):
            raise SnapshotDamaged(f"snapshot {number} was taken under another policy")
        barrier = OrderedBarrier(name, (groups[0], groups[-1]), dead_letters, start, about or 0)
    elif policy.output is Output.COMMIT:
        barrier = EpochBarrier(name, (groups[0], groups[-1]), dead_letters)
        barrier.restore(number, about)
    else:
        barrier = ImmediateBarrier(name, (groups[0], groups[-1]), dead_letters)

    keyed: dict[str, Keyed] = {}
    group_cache = GroupCache(plan.flow.groups)

    def make(vertex: Vertex, after: Step, failures: Failures) -> Step:
        order = Speculative if policy.ordered else Arrival
        step = keyed[vertex.name] = order(
            vertex, after, failures, group_cache, record=policy.cut is not SnapshotCut.NONE
        )
        return step

    segments = Segments(plan, OwnerCache(nodes, group_cache), barrier, make)
    gates = [
        BufferingGate(entry, port.stage, new_id)
        if policy.ordering == "buffered" and port.vertex.keyed
        else Gate(entry)
        for port, entry in zip(plan.ports, segments.entries, strict=True)
    ]
    if policy.cut not in (SnapshotCut.MARKERS, SnapshotCut.ALIGNED_MARKERS):
        return Assembly(plan, barrier, segments, keyed, gates)
    alignments = {
        port.number: Alignment[Block](
            {(f"front-{port.front}", port.number)}
            if port.front is not None
            else {(f"node-{node}", feeder) for node in range(nodes) for feeder in port.feeders},
            aligned=policy.cut is SnapshotCut.ALIGNED_MARKERS,
        )
        for port in plan.ports
    }
    return EpochAssembly(plan, barrier, segments, keyed, gates, alignments)
