"""A snapshot that cannot be loaded: the one before is used, or the run ends."""

from __future__ import annotations

from driftline.coordinator.coordinator import Phase
from driftline.coordinator.registry import ClusterState, SnapshotRecord
from driftline.engine.wire.messages import Recover, Start, Stop, Unloadable
from tests.coordinator.cluster import Cluster, restart


def unloadable(cluster: Cluster, number: int) -> None:
    incarnation = cluster.coordinator.state.incarnation
    cluster.coordinator.unloadable("node-1", Unloadable(incarnation, number, "damaged"))


def test_an_unloadable_snapshot_is_left_and_the_one_before_is_used() -> None:
    cluster = Cluster().run()
    cluster.snapshot(1, 50)
    cluster.snapshot(2, 60)
    restart(cluster, "node-1")
    cluster.write()
    cluster.sent()
    unloadable(cluster, 2)
    assert cluster.sent() == []
    [state] = cluster.write()
    assert [record.number for record in state.snapshots] == [1]
    told = [message for _, message in cluster.sent() if isinstance(message, Recover)]
    assert {(m.incarnation, m.number, m.time) for m in told} == {(3, 1, 50)}
    cluster.hello(*cluster.nodes, ready=True)
    [(_, start)] = cluster.sent()
    assert isinstance(start, Start)
    assert start.offset == 50


def test_two_nodes_that_cannot_load_the_same_snapshot_go_back_by_one_only() -> None:
    cluster = Cluster().run()
    cluster.snapshot(1, 50)
    cluster.snapshot(2, 60)
    restart(cluster, "node-1")
    cluster.write()
    for node in cluster.nodes:
        cluster.coordinator.unloadable(node, Unloadable(2, 2, "damaged"))
    cluster.write()
    assert [record.number for record in cluster.written.snapshots] == [1]
    assert cluster.phase() is Phase.LOADING


def test_when_no_snapshot_is_left_everything_is_replayed_from_the_empty_state() -> None:
    cluster = Cluster().run()
    for number in (1, 2, 3):
        cluster.snapshot(number, 40 + 10 * number)
    restart(cluster, "node-1")
    cluster.write()
    for number in (3, 2):
        unloadable(cluster, number)
        cluster.sent()
        cluster.write()
    assert cluster.written.snapshots == ()
    told = [message for _, message in cluster.sent() if isinstance(message, Recover)]
    assert {(message.number, message.time) for message in told} == {(0, 0)}
    unloadable(cluster, 0)  # there is nothing before the empty state
    assert cluster.phase() is Phase.STOPPING
    assert "SnapshotDamaged" in cluster.coordinator.error


def test_two_phase_stops_at_a_damaged_snapshot() -> None:
    """Its outputs have left already: an older one would give others."""
    records = SnapshotRecord(2, 0, (60,)), SnapshotRecord(1, 0, (50,))
    cluster = Cluster(mode="two-phase", state=ClusterState("me", 5, 1, records))
    cluster.hello(*cluster.processes, incarnation=0)
    cluster.write()
    cluster.sent()
    unloadable(cluster, 2)
    cluster.write()
    assert cluster.phase() is Phase.STOPPED
    assert "SnapshotDamaged: node-1 cannot load snapshot 2" in cluster.coordinator.error
    assert {type(message) for _, message in cluster.sent()} == {Stop}


def test_a_run_that_began_from_a_savepoint_does_not_begin_anew_without_it() -> None:
    records = (SnapshotRecord(1, 40, (40,)),)
    cluster = Cluster(state=ClusterState("me", 2, 0, records, base=1))
    cluster.hello(*cluster.processes, incarnation=0)
    cluster.write()
    unloadable(cluster, 1)
    assert cluster.phase() is Phase.STOPPING
    assert "SnapshotDamaged: node-1 cannot load snapshot 1" in cluster.coordinator.error
