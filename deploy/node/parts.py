"""Parts: what a node works with in one incarnation, made as its policy wants them.

This is the only place where a policy becomes parts; the node that works with them does not ask
which policy it is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from driftline.barrier.barrier import NOTHING, Barrier
from driftline.barrier.epochs import EpochBarrier
from driftline.barrier.immediate import ImmediateBarrier
from driftline.barrier.ordered import OrderedBarrier
from driftline.barrier.productions import ProductionBarrier
from driftline.deploy.node.peers import Peers, PromptPeers
from driftline.deploy.work.assembly import Assembly
from driftline.deploy.work.blocks import Block, Waiting
from driftline.deploy.work.epochs import EpochAssembly
from driftline.deploy.work.gates import BufferingGate, Gate
from driftline.deploy.work.productions import ProductionAssembly
from driftline.deploy.work.tracking import Tracking
from driftline.engine.compared.alignment import Alignment
from driftline.engine.errors import SnapshotDamaged
from driftline.engine.flow.flow import Vertex
from driftline.engine.flow.plan import Plan
from driftline.engine.keygroups import Owners, owned_by
from driftline.engine.order.chains import Chains
from driftline.engine.order.ends import Maker
from driftline.engine.order.keyed import Arrival, Keyed
from driftline.engine.order.speculative import Speculative
from driftline.engine.order.steps import Failures, Step
from driftline.engine.policy import Output, Policy, SnapshotCut
from driftline.engine.snapshots.jobs import LoadSnapshot
from driftline.engine.wire.codec import unpack


@dataclass(frozen=True, slots=True)
class Parts:
    """Makes the parts of node `index` of `nodes`, for one incarnation after the other."""

    plan: Plan
    policy: Policy
    index: int
    nodes: int
    new_id: Callable[[], int]
    dead_letters: bool = False

    def load(self, number: int = 0, taken: int = 0) -> LoadSnapshot:
        """The job that loads what an incarnation begins with: snapshot `number`, as `taken`."""
        return LoadSnapshot(number, taken, or_later=self.policy.goes_on)

    def tracking(self, start: int) -> Tracking:
        """Progress from the time that is replayed from."""
        ordered, speculative = self.policy.ordered, self._speculative
        return Tracking(self.plan, self.nodes, start, ordered=ordered, speculative=speculative)

    def waiting(self) -> Waiting:
        """What waits at the ports; held back where it would only have to be undone."""
        return Waiting(self.plan, hold_back=self._speculative)

    def peers(self, assembly: Assembly) -> Peers:
        """The other nodes; they need to know of progress if they keep label order."""
        names = [f"node-{node}" for node in range(self.nodes) if node != self.index]
        return Peers(names) if self.policy.ordered else PromptPeers(names, assembly.keep)

    def assembly(self, start: int = 0, number: int = 0, meta: bytes = b"") -> Assembly:
        """What operators and outputs need, as of a snapshot, for states that are still empty.

        Raises SnapshotDamaged for meta data of another policy.
        """
        plan, cut = self.plan, self.policy.cut
        barrier = self._barrier(start, number, unpack(meta) if meta else None)
        keyed: dict[str, Keyed] = {}

        def make(vertex: Vertex, after: Step, failures: Failures, maker: Maker) -> Step:
            order = Speculative if self.policy.ordered else Arrival
            record = cut is not SnapshotCut.NONE
            step = keyed[vertex.name] = order(vertex, after, failures, record, maker)
            return step

        chains = Chains(plan, Owners(self.nodes, plan.flow.groups), barrier, make)
        gates = [
            BufferingGate(entry, port.stage, self.new_id)
            if self.policy.ordering == "buffered" and port.vertex.keyed
            else Gate(entry)
            for port, entry in zip(plan.ports, chains.entries, strict=True)
        ]
        if isinstance(barrier, ProductionBarrier):
            return ProductionAssembly(
                plan, barrier, chains, keyed, gates,
                index=self.index, me=f"node-{self.index}", outputs=barrier, number=number,
            )  # fmt: skip
        if cut in (SnapshotCut.MARKERS, SnapshotCut.ALIGNED_MARKERS):
            return EpochAssembly(plan, barrier, chains, keyed, gates, self._alignments())
        return Assembly(plan, barrier, chains, keyed, gates)

    @property
    def _speculative(self) -> bool:
        return self.policy.ordering == "speculative"

    def _barrier(self, start: int, number: int, about: object) -> Barrier:
        """The barrier, as of a snapshot of which `about` is known."""
        groups = owned_by(self.index, self.nodes, self.plan.flow.groups)
        who = f"barrier-{self.index}", (groups[0], groups[-1]), self.dead_letters
        output = self.policy.output
        if output is Output.FRONTIER:
            return OrderedBarrier(*who, start, _number_in(about, number))
        if self.policy.cut is SnapshotCut.NONE:
            return ImmediateBarrier(*who)
        due, pre_committed = _delivered_in(about, number)
        barrier: Barrier
        if output is Output.COMMIT:
            barrier = EpochBarrier(*who)
            barrier.restore(number, pre_committed)
        elif output is Output.DURABLE:
            barrier = ProductionBarrier(*who)
        else:
            barrier = ImmediateBarrier(*who)
        barrier.expected_t_last = due
        return barrier

    def _alignments(self) -> dict[int, Alignment[Block]]:
        """Per port, the channels whose markers end its epoch."""
        return {
            port.number: Alignment[Block](
                {(f"front-{port.front}", port.number)}
                if port.front is not None
                else {
                    (f"node-{node}", feeder)
                    for node in range(self.nodes)
                    for feeder in port.feeders
                },
                aligned=self.policy.cut is SnapshotCut.ALIGNED_MARKERS,
            )
            for port in self.plan.ports
        }


def _delivered_in(about: object, snapshot: int) -> tuple[int, object]:
    """What the consumer had when a snapshot was prepared, and what was pre-committed with it.

    Raises SnapshotDamaged.
    """
    match about:
        case None:
            return NOTHING, ()
        case (int(due), pre_committed):
            return due, pre_committed
    raise SnapshotDamaged(f"snapshot {snapshot} was taken under another policy")


def _number_in(about: object, snapshot: int) -> int:
    """The number that meta data of a snapshot consist of. Raises SnapshotDamaged."""
    if not isinstance(about, int | None):
        raise SnapshotDamaged(f"snapshot {snapshot} was taken under another policy")
    return about or 0
