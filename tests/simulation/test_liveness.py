"""Liveness: runs end despite hangs, network partitions, slow consumers and an absent master."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import pytest
from msgspec.structs import replace

from driftline.coordinator.leadership import LEADER_TIMEOUT_MIN_S
from driftline.deploy.node.backpressure import Backpressure
from driftline.deploy.node.delivery import DeliveryGossip
from driftline.deploy.node.node import Node
from driftline.deploy.node.pipeline import Snapshotter
from driftline.deploy.roles.front import Front
from driftline.deploy.roles.master import STALLED_AFTER_S
from driftline.deploy.runtime.supervision.restarts import HangDetector
from driftline.engine.labels import INFINITY
from driftline.engine.operators.speculative import Speculative
from driftline.engine.policy import POLICIES
from driftline.engine.wire.messages import Outgoing
from driftline.simulation.masters import master_of
from driftline.simulation.scenarios.disturbances import Hang, RescaleRequest, SlowConsumer
from driftline.simulation.scenarios.flows import SIMULATED
from driftline.simulation.scenarios.live import ArrivalSchedule
from driftline.simulation.scenarios.scenario import (
    MASTERS,
    Scenario,
    draw_scenario,
    without_faults,
)
from driftline.simulation.seeds import run_one
from driftline.simulation.simulation import Simulation
from driftline.simulation.world.timeline import Partition

HANGS = (Hang("node-0", 0.01), Hang("master", 0.01))


def hanging(seed: int, policy: str, *hangs: Hang) -> Scenario:
    return replace(without_faults(draw_scenario(seed, name=policy)), hangs=hangs, standby=False)


@pytest.mark.parametrize("policy", ["exactly-once", "two-phase", "strong-productions"])
@pytest.mark.parametrize("hang", HANGS, ids=lambda hang: hang.host)
def test_a_process_that_hangs_is_replaced(hang: Hang, policy: str) -> None:
    outcome = Simulation(hanging(1, policy, hang)).run()
    assert not outcome.problem
    kind = hang.host.partition("-")[0]
    assert outcome.counted[f"crash {kind} after a silence"] == 1


def test_a_node_and_the_master_may_hang_at_the_same_time() -> None:
    outcome = Simulation(hanging(1, "exactly-once", *HANGS)).run()
    assert not outcome.problem
    assert outcome.counted["crash node after a silence"] >= 1


def rescaling(seed: int) -> Scenario:
    """Return a rescaling in which a joining node hangs at once, while slow disks copy the state.

    Records arrive for long enough.
    """
    drawn = hanging(seed, "exactly-once", Hang("node-2", 0.0))
    pace = ArrivalSchedule(until_s=40.0, bursts=0, skew_s=0.0, misbehaves=0.0, producers=1)
    faults = replace(drawn.faults, job_s=0.1)
    others: dict[str, Any] = {
        "slow_functions": None,
        "slow_consumer": None,
        "drain_at_s": None,
        "faults": faults,
    }
    return replace(
        drawn, nodes=2, rescale_requests=(RescaleRequest(3, 0.05),), live=(pace,), **others
    )


def test_a_node_that_hangs_while_it_joins_is_replaced() -> None:
    outcome = Simulation(rescaling(1)).run()
    assert not outcome.problem
    assert outcome.counted["crash node after a silence"] == 1
    assert outcome.counted["rescaled"] == 1
    assert outcome.counted["recovery from the beginning"] == 0, "the current nodes continue"


@pytest.mark.parametrize("hang", HANGS, ids=lambda hang: hang.host)
def test_simulation_detects_that_hanging_processes_are_not_replaced(hang: Hang) -> None:
    healed = patch("driftline.simulation.simulation.END_TIMEOUT_S", 60.0)
    with healed, patch.object(HangDetector, "find_hung", return_value=[]):
        outcome = Simulation(hanging(1, "exactly-once", hang)).run()
    assert "makes no progress" in outcome.problem


LONG_S = 40.0
"""Duration of the input: longer than a leader takes to step down."""

WAYS = ("from", "to", "both")


def streaming(seed: int, policy: str, until_s: float = LONG_S) -> Scenario:
    """Return a run without faults that has three masters and input until `until_s`."""
    drawn = replace(
        without_faults(draw_scenario(seed, name=policy)),
        standby=True, nodes=2, records=60, snapshot_interval_s=0.1,
    )  # fmt: skip
    pace = ArrivalSchedule(until_s=until_s, bursts=0, skew_s=0.0, misbehaves=0.0, producers=1)
    return replace(
        drawn,
        live=(pace,),
        slow_functions=None,
        slow_consumer=None,
        drain_at_s=None,
        rescale_requests=(),
        embedded=False,
    )


class PartitionedRun(Simulation):
    """Run with a partition between the current leader and a member, from 1 s on.

    Optionally a node crashes meanwhile. `way` is the lost direction, as seen by the member.
    """

    def __init__(self, what: Scenario, member: str, way: str, *, crash: str = "") -> None:
        super().__init__(what)
        self.leaders: list[str] = []
        """The leaders, in order, sampled every 0.1 s."""
        self._member, self._way = member, way
        self.timeline.at_time(1.0, self._begin_partition)
        self.timeline.at_time(1.1, self._look)
        if crash:
            host = self.world.hosts
            self.timeline.at_time(2.0, lambda: self.world.crash(host[crash], "by the test"))

    def _leader(self) -> str:
        found = [(host, master_of(host.role)) for host in self.masters.hosts]
        return next((h.name for h, m in found if m is not None and m.coordinator.leads), "")

    def _begin_partition(self) -> None:
        leader, member = self._leader(), self._member
        if self._way != "to":
            self.world.network.schedule_partition(Partition(member, leader, 0.0))
        if self._way != "from":
            self.world.network.schedule_partition(Partition(leader, member, 0.0))

    def _look(self) -> None:
        if (leader := self._leader()) and self.leaders[-1:] != [leader]:
            self.leaders.append(leader)
        self.timeline.after(0.1, self._look)


@pytest.mark.parametrize(
    ("member", "way"), [("node-1", "from"), ("front-0", "to"), ("node-1", "both")]
)
def test_next_master_takes_over_a_running_flow_without_recovery(member: str, way: str) -> None:
    simulation = PartitionedRun(streaming(1, "exactly-once"), member, way)
    outcome = simulation.run()
    assert not outcome.problem
    assert len(simulation.leaders) == 2
    assert outcome.counted["stepped down"] == 1
    assert outcome.counted["recovery from the beginning"] == 0


@pytest.mark.parametrize(
    ("way", "policy"),
    [
        pytest.param(way, policy, marks=[] if m == n else [pytest.mark.soak])
        for m, way in enumerate(WAYS)
        for n, policy in enumerate(("exactly-once", "two-phase", "strong-productions"))
    ],
)
def test_recovery_does_not_wait_for_the_end_of_a_partition(way: str, policy: str) -> None:
    outcome = PartitionedRun(streaming(1, policy), "node-1", way, crash="node-0").run()
    assert not outcome.problem
    assert outcome.counted["stepped down"] == 1


def dead_to_all(seconds: float) -> Iterator[Partition]:
    """Yield partitions in which no master receives from node-0 for `seconds`."""
    for master in MASTERS:
        yield Partition("node-0", master, 1.0, 1.0 + seconds)


def test_masters_back_off_if_a_member_is_unreachable_for_all() -> None:
    seconds = 32 * LEADER_TIMEOUT_MIN_S
    what = replace(streaming(2, "exactly-once", 10.0), partitions=tuple(dead_to_all(seconds)))
    outcome = Simulation(replace(what, faults=replace(what.faults, until_s=seconds + 2))).run()
    assert not outcome.problem
    # Each of the three waits for 20 s, twice (or more often, if the run progresses), then 40, 80...
    assert 9 <= outcome.counted["stepped down"] <= 12


[COUNTS] = [flow for flow in SIMULATED if flow.spec.endswith(":counts")]

WAITING = 1000


def simulated(name: str, behind: SlowConsumer) -> Simulation:
    what = replace(
        without_faults(draw_scenario(4, COUNTS, name)),
        records=250, window=6, slow_functions=None, live=(None,), sink="memory", embedded=False,
        slow_consumer=behind,
    )  # fmt: skip
    return Simulation(what)


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("seconds", [0.5, STALLED_AFTER_S + 2.0])
def test_slow_consumer_causes_bounded_queues_and_correct_outputs(name: str, seconds: float) -> None:
    simulation = simulated(name, SlowConsumer(seconds, 3 * seconds, WAITING))
    outcome = simulation.run()
    assert not outcome.problem
    assert outcome.counted["slow consumer"] >= 2
    assert not outcome.counted["recovery from the beginning"], (
        "a waiting bundle does not count as lost"
    )
    assert simulation.waiting_bytes < 3 * WAITING


@pytest.mark.parametrize("name", ["none", "at-least-once", "two-phase"])
def test_queues_are_unbounded_without_backpressure(name: str) -> None:
    with patch.object(Backpressure, "update", lambda *_: False):
        simulation = simulated(name, SlowConsumer(5.0, 15.0, WAITING))
        assert not simulation.run().problem
    assert simulation.waiting_bytes > 5 * WAITING


[STAGES] = [flow for flow in SIMULATED if flow.spec.endswith(":two_stages")]

AWAY_FROM_S, BACK_AT_S = 0.045, 9.0
WINDOW, RECORDS = 3, 120


class SuspendedMasterRun(Simulation):
    """Run whose master pauses after the first outputs; a node may crash soon after it resumes."""

    def __init__(self, seed: int, ordering: str, *, crash_after_s: float | None = None) -> None:
        drawn = without_faults(draw_scenario(seed, STAGES, "exactly-once"))
        super().__init__(
            replace(
                drawn,
                policy=replace(drawn.policy, ordering=ordering),
                nodes=2, records=RECORDS, window=WINDOW, snapshot_interval_s=0.02,
                slow_functions=None, live=(None,), sink="memory", embedded=False,
                slow_consumer=None, drain_at_s=None, standby=False,
            )
        )  # fmt: skip
        self.before = self.while_away = self.unsettled = 0
        timeline = self.timeline
        timeline.at_time(AWAY_FROM_S, self._stop_master)
        timeline.at_time(BACK_AT_S - 0.01, self._look)
        if crash_after_s is not None:
            timeline.at_time(
                BACK_AT_S + crash_after_s,
                lambda: self.world.crash(self._node_hosts[0], "by the test"),
            )

    def _sent(self) -> int:
        return sum(host.role.next for host in self._front_hosts if isinstance(host.role, Front))

    def _stop_master(self) -> None:
        [master] = self.masters.hosts
        master.paused_until = BACK_AT_S
        self.before = self._sent()

    def _look(self) -> None:
        self.while_away = self._sent()
        for host in self._node_hosts:
            assert isinstance(host.role, Node)
            for step in host.role.pipeline.keyed.values():
                assert isinstance(step, Speculative)
                self.unsettled += len(step.batches)


@pytest.mark.parametrize("ordering", ["speculative", "buffered"])
def test_outputs_continue_while_the_master_is_suspended(ordering: str) -> None:
    simulation = SuspendedMasterRun(4, ordering)
    outcome = simulation.run()
    assert not outcome.problem
    assert 0 < simulation.before < RECORDS // 2, "it is in flight when the master stops"
    assert simulation.while_away >= INFINITY, "all records were read and sent"
    assert simulation.unsettled == 0, "states are settled without a master"
    assert not outcome.counted["recovery from the beginning"]


def test_without_a_master_a_front_sends_no_more_than_its_window() -> None:
    with patch.object(DeliveryGossip, "deliver", lambda *_: None):
        simulation = SuspendedMasterRun(4, "speculative")
        assert not simulation.run().problem
    assert simulation.while_away <= simulation.before + WINDOW


def outcomes_of_crashes() -> Iterator[str]:
    """Yield the problems of runs with a crash after a paused master asked for a snapshot as of a
    time before its pause, and committed a later one."""
    for seed in (3, 4):
        yield SuspendedMasterRun(seed, "speculative", crash_after_s=0.01).run().problem


def test_snapshot_of_a_time_before_the_master_outage_is_rejected() -> None:
    refused = []
    refuse = Snapshotter.refuse

    def noted(self: Snapshotter, number: int, time: int) -> Outgoing:
        refused.append(number)
        return refuse(self, number, time)

    with patch.object(Snapshotter, "refuse", noted):
        assert {*outcomes_of_crashes()} == {""}
    assert refused


def test_accepting_a_snapshot_of_an_earlier_time_causes_wrong_outputs() -> None:
    with patch.object(Snapshotter, "refuse", Snapshotter.prepare):
        assert any("NotDeterministic" in problem for problem in outcomes_of_crashes())


@pytest.mark.parametrize(
    ("policy", "seeds"),
    [
        ("two-phase", 15),
        ("strong-productions", 15),
        pytest.param("at-least-once", 90, marks=pytest.mark.soak),
    ],
)
def test_bit_flip_on_a_stopped_node_is_reported_or_harmless(policy: str, seeds: int) -> None:
    damaged = refused = 0
    for seed in range(1, seeds + 1):
        what = draw_scenario(seed, name=policy)
        outcome = run_one(replace(what, faults=replace(what.faults, bit_flip=0.3), live=(None,)))
        assert not outcome.problem, f"seed {seed}: {outcome.problem}"
        damaged += outcome.counted["bit flip in data of node"] > 0
        refused += outcome.counted["stopped because of damage"]
    assert damaged > 1
    assert refused > 0 or policy == "at-least-once"
