"""Samples of roles that have not started yet, with every policy; and readiness."""

from __future__ import annotations

from functools import partial
from itertools import count

import pytest

from driftline import Count, Flow, Tumbling, ValueState
from driftline.coordinator.coordinator import Phase
from driftline.coordinator.registry import ClusterState
from driftline.deploy.node.node import Node
from driftline.deploy.roles.candidate import Candidate
from driftline.deploy.roles.front import Front
from driftline.deploy.roles.master import Master
from driftline.deploy.runtime.metrics.catalogue import CATALOGUE
from driftline.deploy.runtime.metrics.roles import (
    candidate_ready,
    candidate_samples,
    fronts_ready,
    master_ready,
    master_samples,
    node_ready,
    node_samples,
)
from driftline.engine.flow.plan import make_plan
from driftline.engine.meters import Sample
from driftline.engine.policy import POLICIES
from driftline.engine.sources.memory import ListSource
from tests.stepped_cluster import SteppedCluster

FLOW = Flow("flow")
FLOW.source("records").key_by(lambda r: r).scan(lambda r, s: r, ValueState[int]("n")).sink()
PLAN = make_plan(FLOW)


def checked(samples: list[Sample]) -> dict[tuple[str, ...], object]:
    for name, labels, _ in samples:
        assert len(labels) == len(CATALOGUE[name].labels)
    return {(name, *labels): value for name, labels, value in samples}


@pytest.mark.parametrize("name", POLICIES)
def test_roles_export_samples_before_their_first_incarnation(name: str) -> None:
    node = Node(0, 1, PLAN, POLICIES[name], count(1).__next__)
    found = checked(list(node_samples(node)))
    assert found["driftline_node_running", "node-0"] == 0
    assert found["driftline_elements_total", "node-0"] == 0
    assert node_ready(node)() == "node-0: starting"

    master = Master(1, PLAN, POLICIES[name], ClusterState("identity"), 1.0)
    found = checked(list(master_samples(master)))
    assert found["driftline_phase", "gathering"] is True
    assert found["driftline_master_leads", "master"] is False
    assert master_ready(master)() == Phase.GATHERING.value

    front = Front(0, 1, PLAN, POLICIES[name], ListSource([]), count(1).__next__)
    assert fronts_ready([front])() == "not reading yet: front-0"


def test_standby_master_exports_all_master_metrics_once_it_leads() -> None:
    made = Master(1, PLAN, POLICIES["exactly-once"], ClusterState("identity"), 1.0)
    candidate = Candidate("me#1", lambda state: made)
    samples, ready = partial(candidate_samples, candidate), candidate_ready(candidate)

    def complete_job(result: object) -> None:
        candidate.tick(candidate.now)
        [job] = candidate.jobs
        candidate.jobs.clear()
        candidate.on_job_done(job, result)

    assert checked(list(samples())) == {("driftline_master_leads", "master"): 0}
    assert ready() == "it has no place in the queue of masters yet"
    complete_job(None)
    complete_job("another#1")
    assert ready() == "", "a standby master is ready to take over"
    candidate.on_queue_changed()
    complete_job("")
    assert ready() == "it leads the queue of masters, and reads the registry"
    complete_job(ClusterState("identity"))
    found = checked(list(samples()))
    assert found["driftline_phase", "gathering"] is True
    assert ready() == Phase.GATHERING.value
    candidate.on_session_expired()
    assert ready() == "its session with ZooKeeper is over"


def test_metrics_of_event_time_are_right_after_a_recovery() -> None:
    flow = Flow("views")
    views = flow.source("views", event_time="at", max_delay=10)
    views.key_by("user").window(Tumbling(10)).aggregate(name="count", n=Count()).sink()
    records: list[tuple[int, object]] = [
        (time, {"user": time % 4, "at": 0 if time == 100 else time}) for time in range(1, 121)
    ]
    cluster = SteppedCluster(flow, [records], window=6)
    cluster.run(cluster.has(20))
    cluster.crash("node-1")

    def sum_of(name: str, *labels: str) -> float:
        nodes = [cluster.parties[node] for node in cluster.nodes]
        samples_per_node = [node_samples(node) for node in nodes if isinstance(node, Node)]
        samples = checked([sample for samples in samples_per_node for sample in samples])
        return sum(float(str(samples.get((name, node, *labels), 0))) for node in cluster.nodes)

    watermark = "driftline_operator_watermark_timestamp_seconds"
    cluster.run(lambda: sum_of(watermark, "count") >= 2 * 105)
    assert sum_of("driftline_source_watermark_timestamp_seconds", "views") >= 2 * 105
    assert sum_of("driftline_late_elements_total", "count") == 1
    assert sum_of("driftline_open_windows", "count") == sum_of("driftline_timers", "count")
    assert 4 <= sum_of("driftline_timers", "count") <= 4 * 3, "up to three windows of each user"
