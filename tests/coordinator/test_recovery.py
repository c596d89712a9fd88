"""Recovery from a snapshot, from an older one if it is damaged, and under other policies."""

from __future__ import annotations

import pytest

from driftline.coordinator.coordinator import MISSING_AFTER_S, Phase
from driftline.coordinator.registry import REGISTRY_RETRY_S, ClusterState, SnapshotRecord
from driftline.engine.wire.messages import (
    MessageLost,
    Recover,
    Start,
    Stop,
    Unloadable,
)
from tests.coordinator.cluster import ScriptedCluster, restart


def test_start_steps_run_in_order() -> None:
    cluster = ScriptedCluster()
    *others, last = cluster.processes
    cluster.hello(*others, incarnation=0)
    assert (cluster.coordinator.jobs, cluster.sent()) == ([], [])  # a member is missing
    cluster.hello(last, incarnation=0)
    assert cluster.sent() == []  # the decision is not written yet
    assert cluster.write() == [ClusterState("me", 1, 1, epoch=1, layout=(0, 1))]
    addresses = tuple((name, f"at {name}") for name in sorted(cluster.processes))
    recover = Recover(1, 0, 0, 0, addresses, layout=(0, 1))
    assert cluster.sent() == [(node, recover) for node in cluster.nodes]
    cluster.hello("node-0", ready=True)
    assert cluster.sent() == []  # a node is not ready
    cluster.hello("node-1", ready=False)
    cluster.hello("node-0", ready=True)
    assert cluster.sent() == []
    assert cluster.coordinator.waits_for == "nodes load a snapshot; not ready: node-1"
    cluster.hello("node-1", ready=True)
    assert cluster.sent() == [("front-0", Start(1, 0, addresses, (0, 1)))]
    assert cluster.phase() is Phase.RUNNING
    assert cluster.coordinator.recoveries == 0


def test_load_message_says_whether_the_snapshot_is_of_the_same_code() -> None:
    for taken, code_from, same in ((3, 3, 1), (3, 4, 0), (None, 0, 1), (None, 4, 0)):
        records = () if taken is None else (SnapshotRecord(7, 40, (40,), taken),)
        cluster = ScriptedCluster(state=ClusterState("me", 9, 3, records, code_from=code_from))
        cluster.load()
        recoveries = [message for _, message in cluster.sent() if isinstance(message, Recover)]
        assert [message.same_code for message in recoveries] == [same, same]


def test_lost_message_starts_one_new_incarnation() -> None:
    cluster = ScriptedCluster().run()
    for _ in range(3):
        cluster.coordinator.on_message_lost(MessageLost(1, "node-1 misses messages of node-0"))
    assert [state.incarnation for state in cluster.write()] == [2]
    cluster.coordinator.on_message_lost(MessageLost(1, "told again"))
    assert cluster.write() == []
    assert cluster.coordinator.recoveries == 1
    assert {name for name, message in cluster.sent() if isinstance(message, Recover)} == {
        "node-0",
        "node-1",
    }


@pytest.mark.parametrize("name", ["node-1", "front-0"])
def test_recovery_starts_when_a_silent_member_returns(name: str) -> None:
    cluster = ScriptedCluster().run()
    cluster.pass_time(MISSING_AFTER_S, silent=(name,))
    assert cluster.phase() is Phase.RUNNING
    cluster.pass_time(1.0, silent=(name,))
    assert cluster.phase() is Phase.GATHERING
    assert cluster.coordinator.recoveries == 1
    assert cluster.write() == []
    cluster.hello(name)
    assert [state.incarnation for state in cluster.write()] == [2]


@pytest.mark.parametrize("done", [False, True])
def test_failed_write_is_retried_and_blocks_further_decisions(done: bool) -> None:
    """It is unknown whether the first attempt took effect; the registry checks."""
    cluster = ScriptedCluster()
    cluster.hello(*cluster.processes, incarnation=0)
    cluster.write_fails(done=done)
    cluster.hello(*cluster.nodes, ready=True)
    cluster.coordinator.consider_snapshot(99)
    assert cluster.coordinator.deadline <= cluster.now + REGISTRY_RETRY_S
    cluster.pass_time(REGISTRY_RETRY_S / 2)
    assert cluster.coordinator.jobs == []
    cluster.pass_time(REGISTRY_RETRY_S)
    assert cluster.sent() == []
    [state] = cluster.write()
    assert state.incarnation == 1
    assert cluster.phase() is Phase.LOADING


def unloadable(cluster: ScriptedCluster, number: int) -> None:
    incarnation = cluster.coordinator.state.incarnation
    cluster.coordinator.on_unloadable("node-1", Unloadable(incarnation, number, "damaged"))


def test_unloadable_snapshot_falls_back_to_the_previous_one() -> None:
    cluster = ScriptedCluster().run()
    cluster.snapshot(1, 50)
    cluster.snapshot(2, 60)
    restart(cluster, "node-1")
    cluster.write()
    cluster.sent()
    unloadable(cluster, 2)
    assert cluster.sent() == []
    [state] = cluster.write()
    assert [record.number for record in state.snapshots] == [1]
    recoveries = [message for _, message in cluster.sent() if isinstance(message, Recover)]
    assert {(m.incarnation, m.number, m.time) for m in recoveries} == {(3, 1, 50)}
    cluster.hello(*cluster.nodes, ready=True)
    [(_, start)] = cluster.sent()
    assert isinstance(start, Start)
    assert start.offset == 50


def test_without_a_loadable_snapshot_replay_starts_from_the_empty_state() -> None:
    cluster = ScriptedCluster().run()
    for number in (1, 2, 3):
        cluster.snapshot(number, 40 + 10 * number)
    restart(cluster, "node-1")
    cluster.write()
    for number in (3, 2):
        unloadable(cluster, number)
        cluster.sent()
        cluster.write()
    assert cluster.written.snapshots == ()
    recoveries = [message for _, message in cluster.sent() if isinstance(message, Recover)]
    assert {(message.number, message.time) for message in recoveries} == {(0, 0)}
    unloadable(cluster, 0)  # nothing to fall back to before the empty state
    assert cluster.phase() is Phase.STOPPING
    assert "SnapshotDamaged: node-1 cannot load snapshot 0" in cluster.coordinator.error
    assert "node-1 cannot load snapshot 2" in cluster.coordinator.error, "the earlier damage"


def test_two_phase_stops_at_a_damaged_snapshot() -> None:
    """Its outputs have already left; replay from an older snapshot would emit different ones."""
    records = SnapshotRecord(2, 0, (60,)), SnapshotRecord(1, 0, (50,))
    cluster = ScriptedCluster(mode="two-phase", state=ClusterState("me", 5, 1, records))
    cluster.load()
    cluster.sent()
    unloadable(cluster, 2)
    cluster.write()
    assert cluster.phase() is Phase.STOPPED
    assert "SnapshotDamaged: node-1 cannot load snapshot 2" in cluster.coordinator.error
    assert {type(message) for _, message in cluster.sent()} == {Stop}


def test_run_from_a_savepoint_fails_if_the_savepoint_is_lost() -> None:
    records = (SnapshotRecord(1, 40, (40,)),)
    cluster = ScriptedCluster(state=ClusterState("me", 2, 0, records, base=1))
    cluster.load()
    unloadable(cluster, 1)
    assert cluster.phase() is Phase.STOPPING
    assert "SnapshotDamaged: node-1 cannot load snapshot 1" in cluster.coordinator.error
