"""End of a run, by completion or failure, and its announcement to all members."""

from __future__ import annotations

import pytest

from driftline.coordinator.coordinator import MISSING_AFTER_S, Coordinator, Phase
from driftline.coordinator.draining import Draining
from driftline.coordinator.registry import ClusterState, RunOutcome, SnapshotRecord
from driftline.engine.labels import INFINITY
from driftline.engine.policy import get_policy
from driftline.engine.wire.messages import Failed, Goodbye, Message, Prepare, Prepared, Stop
from tests.coordinator.cluster import INTERVAL, ScriptedCluster, restart

STOP = Stop("", "FunctionFailed", "operator 'x' failed")
OUTCOME = RunOutcome("", "FunctionFailed", "operator 'x' failed")


def failed(cluster: ScriptedCluster) -> ScriptedCluster:
    """Let the flow of a running cluster fail."""
    incarnation = cluster.coordinator.state.incarnation
    cluster.coordinator.on_failed(Failed(incarnation, "FunctionFailed", "operator 'x' failed"))
    return cluster


def successor(cluster: ScriptedCluster, run: str = "") -> ScriptedCluster:
    """Return the cluster of a new master that reads its predecessor's state."""
    after = ScriptedCluster(state=cluster.written)
    after.coordinator = Coordinator(
        len(after.nodes),
        len(after.fronts),
        get_policy("exactly-once"),
        cluster.written,
        INTERVAL,
        run,
    )
    return after


def goodbye(cluster: ScriptedCluster, *names: str) -> None:
    for name in names:
        cluster.coordinator.on_goodbye(name, Goodbye(cluster.processes[name]))


def stop_to_all_members(cluster: ScriptedCluster) -> list[tuple[str, Message]]:
    return [(name, STOP) for name in cluster.nodes + cluster.fronts]


def test_outcome_is_written_after_the_pending_write() -> None:
    cluster = ScriptedCluster().run()
    cluster.consider_snapshot(50)
    cluster.sent()
    cluster.prepared(1)
    failed(cluster)
    [snapshot] = cluster.write()
    assert (snapshot.snapshots, snapshot.outcome) == (
        (SnapshotRecord(1, 50, (50,), incarnation=1),),
        None,
    )
    [end] = cluster.write()
    assert (end.snapshots, end.outcome) == (snapshot.snapshots, OUTCOME)
    assert cluster.sent() == stop_to_all_members(cluster)


def test_run_ends_without_the_goodbye_of_silent_members() -> None:
    cluster = failed(ScriptedCluster().run())
    cluster.write()
    goodbye(cluster, "node-0", "front-0")
    cluster.pass_time(MISSING_AFTER_S - 1.0, silent=tuple(cluster.processes))
    assert cluster.phase() is Phase.STOPPED
    cluster.pass_time(2.0, silent=tuple(cluster.processes))
    assert cluster.phase() is Phase.ENDED


def test_goodbye_counts_for_one_process_only() -> None:
    """The goodbye of a killed process does not count for the process that replaces it."""
    cluster = failed(ScriptedCluster().run())
    cluster.write()
    earlier = Goodbye(cluster.processes["node-0"])
    goodbye(cluster, *cluster.fronts, "node-0")
    restart(cluster, "node-0")
    cluster.coordinator.on_goodbye("node-0", earlier)  # a late message of the old process
    goodbye(cluster, "node-1")
    assert cluster.phase() is Phase.STOPPED
    goodbye(cluster, "node-0")
    assert cluster.phase() is Phase.ENDED


@pytest.mark.parametrize("error", ["", "FunctionFailed"])
def test_repeated_command_resumes_the_run(error: str) -> None:
    records = (SnapshotRecord(7, 40, (40,)),)
    ended = ClusterState("me", 9, 3, records, RunOutcome("earlier", error, ""))
    cluster = successor(ScriptedCluster(state=ended), "later")
    assert cluster.phase() is Phase.GATHERING
    cluster.hello(*cluster.processes, incarnation=0)
    assert cluster.write() == [ClusterState("me", 10, 4, records, epoch=1, layout=(0, 1))]
    cluster.coordinator.stop()
    assert cluster.phase() is Phase.STOPPING


def at_end(cluster: ScriptedCluster, delivered: int = INFINITY) -> None:
    """End all inputs, with all elements below 51."""
    cluster.coordinator.consider_end(INFINITY, delivered, 51)
    cluster.coordinator.consider_snapshot(min(delivered, 51))


def test_last_snapshot_of_a_completed_run_contains_everything() -> None:
    cluster = ScriptedCluster().run()
    at_end(cluster, delivered=40)
    assert cluster.sent() == [], "no snapshot before all outputs are delivered"
    assert cluster.coordinator.waits_for == "running, at the end of its input"
    at_end(cluster)
    assert cluster.sent() == [(node, Prepare(1, 51)) for node in cluster.nodes]
    for node in cluster.nodes:
        assert cluster.phase() is Phase.RUNNING
        cluster.coordinator.on_prepared(node, Prepared(1, 0))
    cluster.write()
    at_end(cluster)
    [state] = cluster.write()
    assert (state.snapshots[0].time, state.outcome) == (51, RunOutcome("", "", ""))


File = tuple[int, bool, bool]
"""(time, live, ended) as reported by a front."""


@pytest.mark.parametrize(
    ("first", "second", "until"),
    [
        ((31, False, False), (40, False, False), 40),
        ((51, False, True), (31, False, False), 51),
        ((51, False, True), (INFINITY, False, True), INFINITY),
        ((31, False, False), (900, True, False), 31),
        ((51, False, True), (900, True, False), 900),
        ((31, False, False), (900, True, True), 31),
        ((800, True, False), (900, True, True), 900),
    ],
)
def test_drain_end_is_after_every_sent_record(first: File, second: File, until: int) -> None:
    draining = Draining(["front-0", "front-1"], get_policy("exactly-once"))
    draining.on_end_of_input("front-0", *first)
    assert draining.end_time is None
    for _ in range(2):
        draining.on_end_of_input("front-1", *second)
        assert draining.end_time == until
