"""Savepoints: writes the last snapshot of a run as files, and begins a run from such files.

`restore_run` leaves a state directory as if its run had just committed the savepoint as its first
snapshot. The ordinary recovery does the rest: nodes load their key groups, fronts go on from the
savepoint's time. The registry names the snapshot last, so an interrupted restore is done again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from driftline.coordinator.registry import ClusterState, FileRegistry, SnapshotRecord
from driftline.deploy.host.claims import claim, wait_for_others
from driftline.deploy.run.ending import How, how_ended
from driftline.engine.errors import StateMismatch, Unavailable
from driftline.engine.flow.flow import Flow
from driftline.engine.flow.plan import plan
from driftline.engine.keygroups import GroupCache, owned_by
from driftline.engine.policy import POLICIES, Policy, SnapshotCut
from driftline.engine.snapshots.jobs import LoadSnapshot, StoreSnapshot
from driftline.engine.snapshots.merging import restore
from driftline.engine.snapshots.reading import read_store
from driftline.engine.snapshots.savepoint import Savepoint, begin, complete, write_table
from driftline.engine.snapshots.store import LmdbStore, PartStore
from driftline.engine.state.table import StateTable
from driftline.engine.wire.marks import Mark

FIRST = 1
"""The number of the snapshot that a savepoint becomes."""


def restore_run(state: Path, flow: Flow, nodes: int, policy: Policy, savepoint: Savepoint) -> None:
    """Make a savepoint the first snapshot of a run, unless the run has begun.

    Precondition: the run is open. Raises StateMismatch if the savepoint does not fit the flow or
    the policy, SnapshotDamaged, Unavailable.
    """
    savepoint.check_flow(flow)
    if policy.cut is SnapshotCut.NONE:
        raise StateMismatch(
            f"policy {policy.name} takes no snapshots: a run cannot begin from a savepoint"
        )
    registry = FileRegistry(state / "registry")
    run = registry.read()
    if run is None:
        raise Unavailable(f"{state} holds no run")
    if run.base or run.incarnation:
        return
    for index in range(nodes):
        segments = {
            group: segment
            for group in owned_by(index, nodes, flow.groups)
            if (segment := savepoint.segments(flow, group))
        }
        mark = Mark(run.lineage, f"node-{index}", run.opened + 1)
        with _store(state, index, run.identity, flow, mark) as store:
            store.carry_out(LoadSnapshot(0))  # removes the parts of an interrupted attempt
            store.carry_out(StoreSnapshot(FIRST, segments, b""))
    record = SnapshotRecord(FIRST, savepoint.time, (savepoint.time,) * len(flow.sources))
    registry.write(run.next(snapshots=(record,), base=FIRST))


def save_run(state: Path, flow: Flow, output: Path) -> tuple[Savepoint, How]:
    """Write the last committed snapshot of a run as a savepoint into a new directory.

    Changes nothing in `state`. Returns also how the run ended: in good order, the savepoint has all
    records that it worked off. Raises Unavailable if there is no snapshot, or the run is still
    going on; StateMismatch if the snapshot is of another flow, or not a cut by label;
    SnapshotDamaged.
    """
    wait_for_others(state)
    claim(state / "master.lock")
    run = FileRegistry(state / "registry").read()
    if run is None:
        raise Unavailable(f"{state} is no state directory of a run: it has no registry")
    _check_cut(run, flow, state)
    if not run.snapshots:
        raise Unavailable(
            f"{state} holds no committed snapshot: its run has worked off no record, or was ended "
            "at once before the first one. A run writes one when it comes to the end of its input, "
            "and when a signal ends it: let it go on, and end in good order"
        )
    begin(output)
    record = run.snapshots[0]
    nodes = len(list(state.glob("node-*/")))
    groups = GroupCache(flow.groups)
    for index in range(nodes):
        tables = {v.name: StateTable(v.states, []) for v in flow.vertices if v.keyed}
        store = read_store(state / f"node-{index}")
        if store.mark is not None:
            Mark(run.lineage, f"node-{index}", store.mark.session).over(store.mark, store.name)
        restore(tables, PartStore(store, flow).look(record.number).segments)
        for vertex in flow.vertices:
            if vertex.keyed:
                write_table(output, vertex, tables[vertex.name], groups)
    return complete(output, flow, record.time), how_ended(run)


def _check_cut(run: ClusterState, flow: Flow, state: Path) -> None:
    of_flow, policy_name, *_ = run.identity.split("|")
    if of_flow != plan(flow).identity():
        raise StateMismatch(f"{state} holds the state of another flow than {flow.name!r}")
    if POLICIES[policy_name].cut is not SnapshotCut.LABEL:
        raise StateMismatch(
            f"{state} was written under {policy_name}, whose snapshots are no cut by label: only "
            "a run with exactly-once can be saved"
        )


@contextmanager
def _store(state: Path, index: int, identity: str, flow: Flow, mark: Mark) -> Iterator[PartStore]:
    with closing(LmdbStore(state / f"node-{index}", identity, mark)) as store:
        yield PartStore(store, flow)
