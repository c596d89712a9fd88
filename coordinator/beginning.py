"""The beginning of an incarnation: from which snapshot, and what each member is told.

Takes: the state of the registry, the members. Gives: `Recover` (nodes) and `Start` (fronts).
Invariant: all of an incarnation are told the same snapshot, and the same layout.
"""

from __future__ import annotations

from driftline.coordinator.registry import ClusterState, SnapshotRecord
from driftline.engine.policy import Policy
from driftline.engine.wire.messages import Recover, Start

Addresses = tuple[tuple[str, str], ...]


def start_of(state: ClusterState, fronts: int) -> SnapshotRecord:
    """The snapshot that an incarnation begins from; number 0 is the empty snapshot."""
    return state.snapshots[0] if state.snapshots else SnapshotRecord(0, 0, (0,) * fronts)


def recover(
    state: ClusterState, start: SnapshotRecord, place: int, policy: Policy, addresses: Addresses
) -> Recover:
    """What the node at a place of the layout is told."""
    number = start.number
    if policy.goes_on:  # the node's newest part has at least this number
        number = start.parts[place] if start.parts else 0
    same_code = int(state.same_code(start))
    begins = state.incarnation, number, start.taken, start.time
    return Recover(*begins, addresses, same_code, state.layout)


def begin(
    state: ClusterState, start: SnapshotRecord, front: int, policy: Policy, addresses: Addresses
) -> Start:
    """What a front is told."""
    offset = start.offsets[front] if policy.replay else -1
    return Start(state.incarnation, offset, addresses, state.layout)
