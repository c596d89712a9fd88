"""Takeover: a new master continues the previous master's incarnation, or starts another one."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from driftline.coordinator.coordinator import Coordinator, Phase
from driftline.coordinator.registry import (
    REGISTRY_RETRY_S,
    ClusterState,
    RunOutcome,
    SnapshotRecord,
)
from driftline.engine.policy import get_policy
from driftline.engine.wire.messages import (
    Committed,
    FollowsMaster,
    Lead,
    Resume,
)
from tests.coordinator.cluster import INTERVAL, ScriptedCluster

RECORDS = SnapshotRecord(7, 40, (40,)), SnapshotRecord(6, 30, (30,))
FOUND = ClusterState("me", 9, 3, RECORDS, last_session=2, epoch=4, layout=(0, 1))


def successor(
    state: ClusterState = FOUND,
    mode: str = "exactly-once",
    session: int = 2,
    process: str = "master#2",
) -> ScriptedCluster:
    """Return the cluster of a new master (session 2) that reads its predecessor's state."""
    cluster = ScriptedCluster(mode=mode, state=state)
    about = len(cluster.nodes), len(cluster.fronts), get_policy(mode), state, INTERVAL, "run"
    cluster.coordinator = Coordinator(*about, session=session, process=process)
    return cluster


def send_heartbeats(cluster: ScriptedCluster, *but: str) -> None:
    """Let all members but some send heartbeats in the current incarnation."""
    names = [name for name in cluster.processes if name not in but]
    cluster.hello(*names, ready=True, incarnation=3)


def follow(
    cluster: ScriptedCluster, *names: str, asked: int = 0, answered: int = 0, epoch: int = 5
) -> None:
    for name in names:
        cluster.coordinator.on_follows_master(name, FollowsMaster(epoch, 3, asked, answered))


def test_takeover_steps_run_in_order() -> None:
    cluster = successor()
    send_heartbeats(cluster, "node-1")
    assert cluster.coordinator.jobs == []  # a member is missing
    send_heartbeats(cluster)
    assert cluster.phase() is Phase.TAKING_OVER
    follow(cluster, *cluster.processes)
    assert cluster.sent() == []  # an earlier master could still decide
    assert cluster.write() == [replace(FOUND, version=10, epoch=5, leader="master#2")]
    assert cluster.sent() == [(name, Lead()) for name in cluster.processes]


def test_incarnation_resumes_once_all_members_follow() -> None:
    cluster = successor()
    send_heartbeats(cluster)
    cluster.write()
    cluster.sent()
    follow(cluster, "node-0", "front-0")
    follow(cluster, "node-1", epoch=4)
    assert cluster.phase() is Phase.ASKING
    assert "no answer from node-1" in cluster.coordinator.waits_for
    send_heartbeats(cluster)
    assert cluster.sent() == [("node-1", Lead())], "this member may not have received the message"
    follow(cluster, "node-1")
    assert (cluster.phase(), cluster.coordinator.recoveries) == (Phase.RUNNING, 0)
    nodes = [(node, Committed(7, 6, 0, 0)) for node in cluster.nodes]
    goes_on = "front-0", Resume()  # the previous master may have paused it
    assert cluster.sent() == [goes_on, *nodes, ("front-0", Committed(7, 6, 30, 40))]
    assert cluster.coordinator.state.incarnation == 3


@pytest.mark.parametrize("mode", ["two-phase", "strong-productions", "at-least-once", "none"])
def test_takeover_without_label_order_starts_a_recovery(mode: str) -> None:
    cluster = successor(mode=mode)
    send_heartbeats(cluster)
    assert cluster.write()[0].incarnation == 4
    assert cluster.coordinator.recoveries == 1


@pytest.mark.parametrize(
    ("state", "session"),
    [(FOUND, 3), (replace(FOUND, outcome=RunOutcome("earlier", "", "")), 2)],
    ids=["of an earlier call", "of a call that is over"],
)
def test_takeover_does_not_resume_an_incarnation_of_another_session(
    state: ClusterState, session: int
) -> None:
    cluster = successor(state, session=session)
    send_heartbeats(cluster)
    [written] = cluster.write()
    assert (written.incarnation, written.last_session) == (4, session)
    assert cluster.coordinator.recoveries == 0, "this call starts the run"


def test_only_one_of_two_masters_with_the_same_decision_leads() -> None:
    """This also holds if the result of the other master's write is unknown."""
    first, second = successor(process="master#2"), successor(process="master#3")
    for cluster in (first, second):
        send_heartbeats(cluster, "node-1")
        cluster.hello("node-1", incarnation=0)
    second.write_fails()
    first.write()
    second.written = first.written
    second.pass_time(2 * REGISTRY_RETRY_S)
    assert second.write() == []
    assert (first.phase(), second.phase()) == (Phase.LOADING, Phase.SUPERSEDED)
