"""Failure detection: leases, back-off between recoveries, and masters that step down."""

from __future__ import annotations

import logging

import pytest

from driftline.coordinator.coordinator import MISSING_AFTER_S, Phase
from driftline.coordinator.members import LONGEST_PAUSE_S, Backoff
from driftline.engine.wire.messages import Alive, Failed, FollowsMaster, Lead, MessageLost
from tests.coordinator.cluster import ScriptedCluster, restart


def test_member_that_sends_alive_is_not_missing_without_hello() -> None:
    cluster = ScriptedCluster().run()
    until = cluster.now + 4 * MISSING_AFTER_S
    while cluster.now < until:
        cluster.pass_time(0.5, silent=("node-0",))
        cluster.coordinator.on_alive("node-0", Alive(cluster.processes["node-0"], 7, 1))
    assert (cluster.phase(), cluster.coordinator.recoveries) == (Phase.RUNNING, 0)


def test_process_that_returns_from_silence_gets_a_longer_timeout() -> None:
    cluster = ScriptedCluster().run()
    cluster.pass_time(2 * MISSING_AFTER_S, silent=("node-0",))
    assert cluster.coordinator.recoveries == 1
    cluster.run()
    cluster.pass_time(3 * MISSING_AFTER_S, silent=("node-0",))
    assert (cluster.phase(), cluster.coordinator.recoveries) == (Phase.RUNNING, 1)
    cluster.pass_time(2 * MISSING_AFTER_S, silent=("node-0",))
    assert cluster.coordinator.recoveries == 2


def test_suspended_master_does_not_declare_members_missing() -> None:
    cluster = ScriptedCluster().run()
    cluster.now += 3 * MISSING_AFTER_S
    cluster.coordinator.tick(cluster.now)
    assert cluster.phase() is Phase.RUNNING


def test_recoveries_without_progress_back_off_and_log_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster = ScriptedCluster().run()
    waited = []
    for _ in range(9):
        lost = MessageLost(cluster.coordinator.state.incarnation, "something is lost")
        with caplog.at_level(logging.WARNING):
            cluster.coordinator.on_message_lost(lost)
        began = cluster.now
        while cluster.phase() is Phase.WAITING:
            cluster.now = cluster.coordinator.deadline
            cluster.hello(*cluster.processes)
            cluster.coordinator.tick(cluster.now)
        waited.append(round(cluster.now - began, 3))
        cluster.write()
        cluster.hello(*cluster.nodes, ready=True)
        assert cluster.phase() is Phase.RUNNING
    assert waited == [0, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, LONGEST_PAUSE_S]
    assert "no progress in 2 recoveries, the next in 0.2 s" in caplog.text
    cluster.coordinator.note_progress(5, 5)
    cluster.coordinator.on_message_lost(MessageLost(cluster.coordinator.state.incarnation, "again"))
    assert cluster.phase() is Phase.DECIDING


def test_replay_does_not_reset_the_backoff_but_a_snapshot_does() -> None:
    backoff = Backoff()
    backoff.note_progress(10, 8, 0)
    assert backoff.next_pause_s() == 0
    backoff.note_progress(3, 3, 0)
    backoff.note_progress(10, 8, 0)
    assert backoff.next_pause_s() > 0
    backoff.note_progress(4, 4, 1)
    assert backoff.next_pause_s() == 0


def probe(cluster: ScriptedCluster, *answer: str) -> None:
    """Probe all members; the ones in `answer` respond."""
    cluster.coordinator.probe_members()
    assert [name for name, message in cluster.sent() if isinstance(message, Lead)] == [
        *cluster.nodes,
        *cluster.fronts,
    ]
    for name in answer:
        state = cluster.coordinator.state
        cluster.coordinator.on_follows_master(
            name, FollowsMaster(state.epoch, state.incarnation, 0, 0)
        )


def test_silent_member_is_unreachable_since_gathering_started() -> None:
    cluster = ScriptedCluster().run()
    cluster.pass_time(MISSING_AFTER_S + 1, silent=("node-1",))
    assert cluster.phase() is Phase.GATHERING
    before = cluster.coordinator.unreachable_s["node-1"]
    assert before <= 1
    cluster.pass_time(3.0, silent=("node-1",))
    assert cluster.coordinator.unreachable_s == {"node-1": before + 3}


def test_member_that_sends_but_never_answers_probes_is_unreachable() -> None:
    cluster = ScriptedCluster().run()
    for _ in range(2):
        probe(cluster, "node-0", "front-0")
        cluster.pass_time(4.0)
    assert [*cluster.coordinator.unreachable_s] == ["node-1"]
    assert 7.0 < cluster.coordinator.unreachable_s["node-1"] <= 8.0
    probe(cluster, *cluster.processes)
    assert cluster.coordinator.unreachable_s == {}


def test_busy_silent_or_restarted_member_is_not_unreachable() -> None:
    cluster = ScriptedCluster().run()
    probe(cluster, "node-0", "front-0")
    for _ in range(20):
        cluster.coordinator.on_alive("node-1", Alive(cluster.processes["node-1"], 1, 1))
        cluster.pass_time(1.0, silent=("node-1",))
    assert cluster.coordinator.unreachable_s == {}
    cluster.pass_time(1.0)
    assert cluster.coordinator.unreachable_s["node-1"] <= 1, (
        "node-1 can only have read the probe now"
    )
    restart(cluster, "node-1")
    assert "node-1" not in cluster.coordinator.unreachable_s


def test_stepped_down_master_makes_no_decisions() -> None:
    cluster = ScriptedCluster().run()
    cluster.pass_time(MISSING_AFTER_S + 1, silent=("node-1",))
    cluster.coordinator.step_down()
    cluster.sent()
    cluster.pass_time(10.0)
    restart(cluster, "node-0")
    cluster.coordinator.on_failed(Failed(cluster.coordinator.state.incarnation, "Error", "why"))
    assert (cluster.phase(), cluster.write(), cluster.sent()) == (Phase.SUPERSEDED, [], [])
