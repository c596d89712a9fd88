"""Who is slow is not dead, and recovery that gets nowhere does not go on without a pause."""

from __future__ import annotations

import logging

import pytest

from driftline.coordinator.coordinator import MISSING_AFTER_S, Phase
from driftline.coordinator.members import CALM_S, LONGEST_PAUSE_S, Backoff
from driftline.engine.wire.messages import Alive, Lost
from tests.coordinator.cluster import Cluster, restart


def test_who_lives_is_not_missing_though_it_cannot_say_hello() -> None:
    cluster = Cluster().run()
    until = cluster.now + 4 * MISSING_AFTER_S
    while cluster.now < until:
        cluster.pass_time(0.5, silent=("node-0",))
        cluster.coordinator.alive("node-0", Alive(cluster.processes["node-0"], 7, 1))
    assert (cluster.phase(), cluster.coordinator.recoveries) == (Phase.RUNNING, 0)


def test_a_process_of_the_past_does_not_speak_for_the_one_of_today() -> None:
    cluster = Cluster().run()
    until = cluster.now + 2 * MISSING_AFTER_S
    while cluster.now < until:
        cluster.pass_time(0.5, silent=("node-0",))
        cluster.coordinator.alive("node-0", Alive("an older one", 7, 1))
    assert cluster.coordinator.recoveries == 1


def test_a_process_that_comes_back_from_silence_is_given_more_time() -> None:
    cluster = Cluster().run()
    cluster.pass_time(2 * MISSING_AFTER_S, silent=("node-0",))
    assert cluster.coordinator.recoveries == 1
    cluster.run()
    cluster.pass_time(3 * MISSING_AFTER_S, silent=("node-0",))
    assert (cluster.phase(), cluster.coordinator.recoveries) == (Phase.RUNNING, 1)
    cluster.pass_time(2 * MISSING_AFTER_S, silent=("node-0",))
    assert cluster.coordinator.recoveries == 2


def test_a_new_process_has_to_earn_that_time_itself() -> None:
    cluster = Cluster().run()
    cluster.pass_time(2 * MISSING_AFTER_S, silent=("node-0",))
    cluster.run()
    restart(cluster, "node-0")
    cluster.run()
    cluster.pass_time(MISSING_AFTER_S + 1, silent=("node-0",))
    assert cluster.coordinator.recoveries == 3


def test_a_master_that_was_away_itself_takes_nobody_for_dead() -> None:
    cluster = Cluster().run()
    cluster.now += 3 * MISSING_AFTER_S
    cluster.coordinator.tick(cluster.now)
    assert cluster.phase() is Phase.RUNNING


def test_recovery_that_gets_nowhere_waits_longer_each_time_and_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster = Cluster().run()
    waited = []
    for _ in range(9):
        lost = Lost(cluster.coordinator.state.incarnation, "something is lost")
        with caplog.at_level(logging.WARNING):
            cluster.coordinator.lost(lost)
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
    assert "no progress since 2 recoveries, the next in 0.2 s" in caplog.text
    cluster.coordinator.moved(5, 5)
    cluster.coordinator.lost(Lost(cluster.coordinator.state.incarnation, "again"))
    assert cluster.phase() is Phase.DECIDING


def test_who_is_restarted_while_others_wait_is_waited_for() -> None:
    cluster = Cluster().run()
    for _ in range(2):
        cluster.coordinator.lost(Lost(cluster.coordinator.state.incarnation, "lost"))
        if cluster.phase() is Phase.DECIDING:
            cluster.write()
            cluster.hello(*cluster.nodes, ready=True)
    assert cluster.phase() is Phase.WAITING
    restart(cluster, "node-1")
    assert cluster.phase() is Phase.WAITING
    cluster.pass_time(0.5)
    assert cluster.phase() is Phase.DECIDING


def test_a_replay_is_no_progress_but_a_snapshot_is() -> None:
    backoff = Backoff()
    backoff.moved(10, 8, 0)
    assert backoff.pause_s() == 0
    backoff.moved(3, 3, 0)
    backoff.moved(10, 8, 0)
    assert backoff.pause_s() > 0
    backoff.moved(4, 4, 1)
    assert backoff.pause_s() == 0


def test_that_time_is_taken_back_while_a_process_is_never_silent() -> None:
    cluster = Cluster().run()
    cluster.pass_time(20 * MISSING_AFTER_S, silent=("node-0",))
    cluster.run()
    cluster.pass_time(8 * CALM_S)
    cluster.pass_time(2 * MISSING_AFTER_S, silent=("node-0",))
    assert cluster.coordinator.recoveries == 2
