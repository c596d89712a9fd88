"""Factory of the objects that a node uses in one incarnation under its policy.

Only this module maps policies to objects.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from driftline.barrier.barrier import BUNDLE_BYTES, NO_T_LAST, Barrier
from driftline.barrier.ordered import OrderedBarrier
from driftline.barrier.unordered import EpochBarrier, ImmediateBarrier, ProductionBarrier
from driftline.deploy.node.input_queue import InputQueue
from driftline.deploy.node.pipeline import BufferingGate, NodePipeline
from driftline.deploy.node.tracking import Tracking
from driftline.deploy.node.unordered import EpochPipeline, ProductionPipeline, TwoPhasePipeline
from driftline.engine.errors import SnapshotDamaged
from driftline.engine.event_time import Clock, Watermark
from driftline.engine.flow.chains import Chains
from driftline.engine.flow.plan import Plan
from driftline.engine.keygroups import Layout, Owners, node_names, owned_groups
from driftline.engine.operators.keyed import ArrivalOrder, Keyed
from driftline.engine.operators.operator import Vertex
from driftline.engine.operators.outputs import OutputEncoder
from driftline.engine.operators.speculative import Speculative
from driftline.engine.operators.steps import FailureReporter, Step
from driftline.engine.operators.timed import TimedStep
from driftline.engine.policy import Output, Policy
from driftline.engine.snapshots.jobs import LoadSnapshot
from driftline.engine.wire.codec import unpack


class ComponentFactory(Struct, frozen=True):
    """Factory of the components of node `index` of a layout; each incarnation has new ones.

    `new_id`: returns a random id; `dead_letters`, `bundle_bytes`, `reports_progress`: see
    `Barrier`.
    """

    plan: Plan
    policy: Policy
    index: int
    layout: Layout
    new_id: Callable[[], int]
    dead_letters: bool = False
    bundle_bytes: int = BUNDLE_BYTES
    reports_progress: bool = False

    @property
    def position(self) -> int:
        """Position of the node in its layout."""
        return self.layout.index(self.index)

    @property
    def nodes(self) -> int:
        """Number of nodes in the layout."""
        return len(self.layout)

    def make_load_job(self, number: int = 0, snapshot_incarnation: int = 0) -> LoadSnapshot:
        """Return the job that loads snapshot `number`, taken in the given incarnation."""
        return LoadSnapshot(number, snapshot_incarnation, allow_later=self.policy.recovers_locally)

    def make_tracking(self, start: int, clock: Clock | None) -> Tracking:
        """Return the tracking of an incarnation that replays from time `start`."""
        ordered, speculative = self.policy.ordered, self._speculative
        return Tracking(
            self.plan, self.nodes, start, clock, ordered=ordered, speculative=speculative
        )

    def make_input_queue(self) -> InputQueue:
        """Return the queue of blocks; under load, blocks of a speculative node wait."""
        return InputQueue(self.plan, hold_back=self._speculative)

    @property
    def ordered(self) -> bool:
        """Whether order-sensitive operators see elements in label order."""
        return self.policy.ordered

    @property
    def others(self) -> list[str]:
        """Names of the other nodes."""
        return node_names(node for node in self.layout if node != self.index)

    def make_pipeline(
        self, start: int = 0, number: int = 0, meta: bytes = b"", same_code: bool = True
    ) -> NodePipeline:
        """Return a pipeline with empty tables, into which snapshot `number` may be restored.

        `start`: the time of the snapshot; `number` 0: no snapshot; `meta`: the metadata of the
        snapshot; `same_code`: whether the snapshot was taken by the code that runs now.
        Raises SnapshotDamaged if another policy wrote the metadata.
        """
        plan = self.plan
        barrier = self._barrier(start, number, unpack(meta) if meta else None, same_code)
        clock = self._clock()
        keyed: dict[str, Keyed] = {}

        def make(
            vertex: Vertex, after: Step, failures: FailureReporter, encoder: OutputEncoder
        ) -> Step:
            keeps_changelog = self.policy.has_snapshots
            step: Keyed
            if vertex.on_timer is not None:
                assert clock is not None
                watermark = Watermark(clock, plan.flow.fronts_of(vertex))
                step = TimedStep(vertex, after, failures, watermark, keeps_changelog, encoder)
            else:
                order = Speculative if self.policy.ordered else ArrivalOrder
                step = order(vertex, after, failures, keeps_changelog, encoder)
            keyed[vertex.name] = step
            return step

        chains = Chains(plan, Owners(self.nodes, plan.flow.groups), barrier, make)
        buffered = self.policy.ordering == "buffered"
        gates = {
            port.number: BufferingGate(port.stage, self.new_id)
            for port in plan.ports
            if buffered and port.vertex.is_keyed and port.vertex.on_timer is None
        }
        components = plan, barrier, chains, keyed, gates
        me = f"node-{self.index}"
        if isinstance(barrier, ProductionBarrier):
            return ProductionPipeline(
                *components, index=self.position, me=me, outputs=barrier, number=number
            )
        if isinstance(barrier, EpochBarrier):
            names = node_names(self.layout)
            return TwoPhasePipeline(*components, names=names, me=me, outputs=barrier)
        if self.policy.has_markers:
            return EpochPipeline(*components, names=node_names(self.layout), me=me)
        return NodePipeline(*components, clock)

    def _clock(self) -> Clock | None:
        """Return the clock of the sources' event times; None if no operator has timers."""
        if not self.plan.waiting_ports:
            return None
        event_times = [source.event_time for source in self.plan.flow.sources]
        return Clock([None if each is None else each.max_delay for each in event_times])

    @property
    def _speculative(self) -> bool:
        return self.policy.ordering == "speculative"

    def _barrier(self, start: int, number: int, meta: object, same_code: bool) -> Barrier:
        """Return the barrier that starts at a snapshot; `meta`: its decoded metadata."""
        barrier = self._barrier_of_policy(start, number, meta, same_code)
        barrier.bundle_bytes = self.bundle_bytes
        barrier.reports_progress = self.reports_progress
        return barrier

    def _barrier_of_policy(self, start: int, number: int, meta: object, same_code: bool) -> Barrier:
        groups = owned_groups(self.position, self.nodes, self.plan.flow.groups)
        options = f"barrier-{self.index}", (groups[0], groups[-1]), self.dead_letters
        output = self.policy.output
        if output is Output.FRONTIER:
            return OrderedBarrier(*options, start, _checksum_in(meta, number), same_code)
        if not self.policy.has_snapshots:
            return ImmediateBarrier(*options)
        expected_t_last, pre_committed = _outputs_in(meta, number)
        barrier: Barrier
        if output is Output.COMMIT:
            barrier = EpochBarrier(*options)
            barrier.restore(number, pre_committed)
        elif output is Output.DURABLE:
            barrier = ProductionBarrier(*options)
        else:
            barrier = ImmediateBarrier(*options)
        barrier.expected_t_last = expected_t_last
        return barrier


def _outputs_in(meta: object, snapshot: int) -> tuple[int, object]:
    """Return (the consumer's t_last, pre-committed outputs) from the metadata of a snapshot.

    Raises SnapshotDamaged.
    """
    match meta:
        case None:
            return NO_T_LAST, ()
        case (int(t_last), pre_committed):
            return t_last, pre_committed
    raise SnapshotDamaged(f"snapshot {snapshot} was taken under another policy")


def _checksum_in(meta: object, snapshot: int) -> int:
    """Return the checksum of all outputs before a snapshot, from its metadata.

    Return 0 without metadata. Raises SnapshotDamaged.
    """
    if not isinstance(meta, int | None):
        raise SnapshotDamaged(f"snapshot {snapshot} was taken under another policy")
    return meta or 0
