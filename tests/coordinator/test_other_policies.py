"""Snapshots under the other policies: by markers, of productions, none at all."""

from __future__ import annotations

from driftline.coordinator.coordinator import Phase
from driftline.coordinator.registry import ClusterState, SnapshotRecord
from driftline.engine.wire.messages import (
    BeginEpoch,
    Committed,
    Prepare,
    Prepared,
    Recover,
    Unloadable,
)
from tests.coordinator.cluster import INTERVAL, Cluster


def test_a_snapshot_by_markers_begins_at_the_fronts_and_keeps_their_offsets() -> None:
    cluster = Cluster(fronts=2, mode="two-phase").run()
    cluster.pass_time(INTERVAL + 0.1)
    cluster.coordinator.consider_snapshot(0)
    assert cluster.sent() == [(front, BeginEpoch(1)) for front in cluster.fronts]
    for node in cluster.nodes:
        cluster.coordinator.prepared(node, Prepared(1, 0))
    assert cluster.write() == []  # fronts have a part as well
    cluster.coordinator.prepared("front-1", Prepared(1, 88))
    cluster.coordinator.prepared("front-0", Prepared(1, 77))
    [state] = cluster.write()
    assert state.snapshots == (SnapshotRecord(1, 0, (77, 88), 1),)
    committed = {name: m for name, m in cluster.sent() if isinstance(m, Committed)}
    assert set(committed) == {*cluster.nodes, *cluster.fronts}
    assert (committed["front-0"].trim, committed["front-1"].trim) == (77, 88)


def test_without_snapshots_none_is_taken() -> None:
    cluster = Cluster(mode="none").run()
    cluster.pass_time(5 * INTERVAL)
    cluster.coordinator.consider_snapshot(99)
    assert cluster.sent() == []


def test_of_productions_only_the_inputs_that_nobody_needs_are_written_down() -> None:
    cluster = Cluster(fronts=2, mode="strong-productions").run()
    cluster.pass_time(INTERVAL + 0.1)
    cluster.coordinator.consider_snapshot(0)
    assert cluster.write() == []
    cluster.pass_time(INTERVAL + 0.1)
    cluster.coordinator.consider_snapshot(40)
    assert cluster.sent() == [(node, Prepare(1, 40)) for node in cluster.nodes]
    cluster.coordinator.prepared("node-0", Prepared(1, 17))
    assert cluster.write() == []
    cluster.coordinator.prepared("node-1", Prepared(1, 0))
    assert cluster.write()[0].snapshots == (SnapshotRecord(1, 40, (40, 40), 1, (17, 0)),)
    assert ("front-0", Committed(1, 0, 40, 40)) in cluster.sent()


def test_of_productions_every_node_loads_the_latest_that_it_has() -> None:
    """Which is no older than what it had when the last snapshot was written down."""
    records = (SnapshotRecord(7, 40, (40,), 2, (17, 5)),)
    cluster = Cluster(mode="strong-productions", state=ClusterState("me", 9, 3, records))
    cluster.hello(*cluster.processes, incarnation=0)
    cluster.write()
    for (_, message), number in zip(cluster.sent(), (17, 5), strict=True):
        assert isinstance(message, Recover)
        assert (message.number, message.time) == (number, 40)
    cluster.coordinator.unloadable("node-0", Unloadable(4, 17, "damaged"))
    assert cluster.phase() is Phase.STOPPING, "what has left cannot be made again"
    assert "SnapshotDamaged" in cluster.coordinator.error
