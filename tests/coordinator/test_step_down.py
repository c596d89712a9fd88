"""Which members a master misses, and how long it waits for them before it makes way."""

from __future__ import annotations

from driftline.coordinator.coordinator import MISSING_AFTER_S, Phase
from driftline.coordinator.leadership import LONGEST_S, PATIENCE_S, patience_s
from driftline.engine.wire.messages import Alive, Failed, Following, Lead
from tests.coordinator.cluster import Cluster, restart


def asked(cluster: Cluster, *answer: str) -> None:
    """Everybody is asked; these members answer."""
    cluster.coordinator.ask_who_hears()
    assert [name for name, message in cluster.sent() if isinstance(message, Lead)] == [
        *cluster.nodes,
        *cluster.fronts,
    ]
    for name in answer:
        state = cluster.coordinator.state
        cluster.coordinator.following(name, Following(state.epoch, state.incarnation, 0, 0))


def test_a_member_that_is_not_heard_is_missed_since_the_master_gathers() -> None:
    cluster = Cluster().run()
    cluster.pass_time(MISSING_AFTER_S + 1, silent=("node-1",))
    assert cluster.phase() is Phase.GATHERING
    before = cluster.coordinator.missed["node-1"]
    assert before <= 1
    cluster.pass_time(3.0, silent=("node-1",))
    assert cluster.coordinator.missed == {"node-1": before + 3}


def test_a_member_that_is_heard_and_never_answers_is_missed() -> None:
    cluster = Cluster().run()
    for _ in range(2):
        asked(cluster, "node-0", "front-0")
        cluster.pass_time(4.0)
    assert [*cluster.coordinator.missed] == ["node-1"]
    assert 7.0 < cluster.coordinator.missed["node-1"] <= 8.0
    asked(cluster, *cluster.processes)
    assert cluster.coordinator.missed == {}


def test_who_is_busy_or_silent_or_a_new_process_is_not_taken_for_deaf() -> None:
    cluster = Cluster().run()
    asked(cluster, "node-0", "front-0")
    for _ in range(20):
        cluster.coordinator.alive("node-1", Alive(cluster.processes["node-1"], 1, 1))
        cluster.pass_time(1.0, silent=("node-1",))
    assert cluster.coordinator.missed == {}
    cluster.pass_time(1.0)
    assert cluster.coordinator.missed["node-1"] <= 1, "it can only have read the question now"
    restart(cluster, "node-1")
    assert "node-1" not in cluster.coordinator.missed


def test_the_time_in_which_the_master_stood_still_does_not_count() -> None:
    cluster = Cluster().run()
    asked(cluster, "node-0", "front-0")
    cluster.pass_time(MISSING_AFTER_S + 1, silent=("node-1",))
    cluster.coordinator.tick(cluster.now + 3600.0)
    assert cluster.coordinator.missed["node-1"] <= 1


def test_before_it_leads_nobody_is_asked() -> None:
    """A `Following` would be one to the master before."""
    cluster = Cluster()
    cluster.coordinator.ask_who_hears()
    cluster.hello(*cluster.processes, incarnation=0)
    cluster.coordinator.ask_who_hears()
    assert cluster.sent() == []


def test_who_has_made_way_decides_nothing() -> None:
    cluster = Cluster().run()
    cluster.pass_time(MISSING_AFTER_S + 1, silent=("node-1",))
    cluster.coordinator.step_down()
    cluster.sent()
    cluster.pass_time(10.0)
    restart(cluster, "node-0")
    cluster.coordinator.failed(Failed(cluster.coordinator.state.incarnation, "Error", "why"))
    assert (cluster.phase(), cluster.write(), cluster.sent()) == (Phase.BROKEN, [], [])


def test_the_patience_outlasts_the_replacement_of_a_process_that_hangs_and_grows() -> None:
    assert patience_s(MISSING_AFTER_S) == PATIENCE_S
    assert patience_s(30.0) > 30.0 + 2 * 30.0
    assert [patience_s(5.0, n) for n in (1, 2, 99)] == [2 * PATIENCE_S, 4 * PATIENCE_S, LONGEST_S]
    assert patience_s(600.0, 3) == 2400.0
