"""Savepoints of runs: what a run's last snapshot holds as files, and a run that begins from files.

`restore_run` prepares a state directory as if its run had just committed the savepoint as its first
snapshot; from there on the ordinary recovery does everything: nodes load their key groups, fronts
go on from the savepoint's time. That it is the first snapshot is written last, so an interrupted
preparation is simply done again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from driftline.coordinator.registry import ClusterState, FileRegistry, SnapshotRecord
from driftline.deploy.host.process import claim
from driftline.engine.errors import StateMismatch, Unavailable
from driftline.engine.flow.flow import Flow
from driftline.engine.flow.plan import plan
from driftline.engine.keygroups import GroupCache, owned_by
from driftline.engine.policy import POLICIES, Policy, SnapshotCut
from driftline.engine.snapshots.jobs import LoadSnapshot, StoreSnapshot
from driftline.engine.snapshots.merging import restore
from driftline.engine.snapshots.savepoint import Savepoint, begin, complete, write_table
from driftline.engine.snapshots.store import LmdbStore, PartStore
from driftline.engine.state.managed import StateTable
from driftline.engine.wire.marks import Mark

FIRST = 1
"""The number of the snapshot that a savepoint becomes."""


def restore_run(state: Path, flow: Flow, nodes: int, policy: Policy, savepoint: Savepoint) -> None:
    """Let the run that was opened in a state directory begin from a savepoint, unless it has begun.

    Raises StateMismatch if it does not fit, SnapshotDamaged, Unavailable.
    """
    savepoint.check_flow(flow)
    if policy.cut is SnapshotCut.NONE:
        raise StateMismatch(f"policy {policy.name} keeps no state that a savepoint could be")
    registry = FileRegistry(state / "registry")
    found = registry.read()
    if found is None:
        raise Unavailable(f"{state} holds no run")
    if found.base or found.incarnation:
        return
    for index in range(nodes):
        segments = {
            group: segment
            for group in owned_by(index, nodes, flow.groups)
            if (segment := savepoint.segments(flow, group))
        }
        mark = Mark(found.lineage, f"node-{index}", found.opened + 1)
        with _store(state, index, found.identity, flow, mark) as store:
            store.carry_out(LoadSnapshot(0))  # what an interrupted attempt has left
            store.carry_out(StoreSnapshot(FIRST, segments, b""))
    record = SnapshotRecord(FIRST, savepoint.time, (savepoint.time,) * len(flow.sources))
    registry.write(found.next(snapshots=(record,), base=FIRST))


def save_run(state: Path, flow: Flow, output: Path) -> Savepoint:
    """Write the last committed snapshot of a run that has ended or was stopped as a savepoint.

    Raises Unavailable if there is none or the run goes on, StateMismatch if it is of another flow
    or not a cut by label, SnapshotDamaged.
    """
    found = FileRegistry(state / "registry").read()
    if found is None or not found.snapshots:
        raise Unavailable(f"{state} holds no committed snapshot")
    _check_cut(found, flow, state)
    claim(state / "master.lock")
    begin(output)
    record = found.snapshots[0]
    nodes = len(list(state.glob("node-*/")))
    groups = GroupCache(flow.groups)
    for index in range(nodes):
        tables = {v.name: StateTable(v.states, []) for v in flow.vertices if v.keyed}
        mark = Mark(found.lineage, f"node-{index}", found.opened + 1)
        with _store(state, index, found.identity, flow, mark) as store:
            restore(tables, store.look(record.number).segments)
        for vertex in flow.vertices:
            if vertex.keyed:
                write_table(output, vertex, tables[vertex.name], groups)
    return complete(output, flow, record.time)


def _check_cut(found: ClusterState, flow: Flow, state: Path) -> None:
    of_flow, policy_name, *_ = found.identity.split("|")
    if of_flow != plan(flow).identity():
        raise StateMismatch(f"{state} holds the state of another flow than {flow.name!r}")
    if POLICIES[policy_name].cut is not SnapshotCut.LABEL:
        raise StateMismatch(
            f"{state} was written under {policy_name}, whose snapshots are no cut by label: only "
            "a run with exactly-once has savepoints"
        )


@contextmanager
def _store(state: Path, index: int, identity: str, flow: Flow, mark: Mark) -> Iterator[PartStore]:
    with closing(LmdbStore(state / f"node-{index}", identity, mark)) as kept:
        yield PartStore(kept, flow)
