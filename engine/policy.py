"""Policies: small objects, each of which describes the guarantees of a run.

Nodes, transport, operators and flow are the same under all policies. A policy decides in which
order keyed operators see elements, when outputs leave, how snapshots are cut, and whether fronts
replay after a failure.
"""

from enum import Enum

from msgspec import Struct

from driftline.engine.errors import FlowError


class Output(Enum):
    """When outputs leave a node.

    An *epoch* is the interval between two markers (Flink's checkpoint barriers). A *production*
    contains all results of a node between two of its own snapshots, as in MillWheel.
    """

    AT_ONCE = "at once"
    FRONTIER = "when the frontier passes them"
    COMMIT = "when their epoch is committed"
    DURABLE = "when the production that made them is durable"


class SnapshotCut(Enum):
    """Which elements a snapshot reflects."""

    NONE = "no snapshots"
    LABEL = "all elements below a label"
    MARKERS = "all elements before a marker on their channel, and some after it"
    ALIGNED_MARKERS = "all elements before a marker on their channel, and no others"
    PRODUCTIONS = "all elements: nothing leaves a node before it is durable there"


CUTS_AT_FRONTIER = (SnapshotCut.LABEL, SnapshotCut.PRODUCTIONS)
"""Cuts in which the time of a snapshot is the delivered frontier. Snapshots that markers cut have
no time."""

ORDERINGS = ("speculative", "buffered")
"""Values of `Policy.ordering` that keep label order."""


class Policy(Struct, frozen=True):
    """Guarantees of a run. `replay`: whether fronts replay records after a failure."""

    name: str
    ordering: str  # speculative, buffered, arrival
    output: Output
    cut: SnapshotCut
    replay: bool

    @property
    def ordered(self) -> bool:
        """Whether keyed operators see elements in label order."""
        return self.ordering != "arrival"

    @property
    def has_snapshots(self) -> bool:
        """Whether snapshots are taken at all."""
        return self.cut is not SnapshotCut.NONE

    @property
    def cuts_at_frontier(self) -> bool:
        """Whether the time of a snapshot is the delivered frontier."""
        return self.cut in CUTS_AT_FRONTIER

    @property
    def has_markers(self) -> bool:
        """Whether snapshots are cut by markers."""
        return self.cut in (SnapshotCut.MARKERS, SnapshotCut.ALIGNED_MARKERS)

    @property
    def retains_until_delivery(self) -> bool:
        """Whether a record counts as in flight at its front until its outputs are delivered;
        otherwise until it is processed."""
        return self.output in (Output.FRONTIER, Output.DURABLE)

    @property
    def reads_durable_records(self) -> bool:
        """Whether a front sends a live record only once the record is durable, because its effects
        are durable at once."""
        return self.output is Output.DURABLE

    @property
    def outputs_wait_for_snapshots(self) -> bool:
        """Whether outputs leave only once a snapshot contains the state that made them. Then no
        recovery can use an older snapshot, as it does not match the outputs that have left."""
        return self.output in (Output.COMMIT, Output.DURABLE)

    @property
    def can_loop(self) -> bool:
        """Whether a flow may have iterations. Buffered order, markers and productions do not allow
        messages of an operator to itself."""
        return self.ordering == "speculative" and self.can_rescale

    @property
    def can_rescale(self) -> bool:
        """Whether the number of nodes can change: outputs and state need a cut at one label."""
        return self.output is Output.FRONTIER and self.cut is SnapshotCut.LABEL

    @property
    def recovers_locally(self) -> bool:
        """Whether a node recovers to the newest state on its own disk, never to an older one."""
        return self.cut is SnapshotCut.PRODUCTIONS


POLICIES = {
    policy.name: policy
    for policy in (
        Policy("none", "arrival", Output.AT_ONCE, SnapshotCut.NONE, replay=False),
        Policy("at-least-once", "arrival", Output.AT_ONCE, SnapshotCut.MARKERS, replay=True),
        Policy("exactly-once", "speculative", Output.FRONTIER, SnapshotCut.LABEL, replay=True),
        Policy("two-phase", "arrival", Output.COMMIT, SnapshotCut.ALIGNED_MARKERS, replay=True),
        Policy(
            "strong-productions", "arrival", Output.DURABLE, SnapshotCut.PRODUCTIONS, replay=True
        ),
    )
}


def get_policy(name: str, ordering: str = "speculative") -> Policy:
    """Return the policy with this name; only exactly-once uses `ordering`.

    Raises FlowError if there is no such policy or ordering.
    """
    if name not in POLICIES:
        raise FlowError(f"unknown policy {name!r}; choose one of {', '.join(POLICIES)}")
    if ordering not in ORDERINGS:
        raise FlowError(f"unknown ordering {ordering!r}; choose one of {', '.join(ORDERINGS)}")
    policy = POLICIES[name]
    if not policy.ordered:
        return policy
    return Policy(policy.name, ordering, policy.output, policy.cut, policy.replay)
