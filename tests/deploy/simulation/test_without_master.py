"""While the master stands still, outputs go on, and states are settled; then it goes on, too."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from unittest.mock import patch

import pytest

from driftline.deploy.node.assembly import Post, Snapshotter
from driftline.deploy.node.delivery import DeliveryGossip
from driftline.deploy.node.node import Node
from driftline.deploy.parties.front import Front
from driftline.deploy.simulation.scenarios.flows import SIMULATED
from driftline.deploy.simulation.scenarios.scenario import scenario, without_faults
from driftline.deploy.simulation.simulation import Simulation
from driftline.engine.labels import INFINITY
from driftline.engine.operators.speculative import Speculative

[STAGES] = [flow for flow in SIMULATED if flow.spec.endswith(":two_stages")]

AWAY_FROM_S, BACK_AT_S = 0.05, 9.0
WINDOW, RECORDS = 3, 400


class Away(Simulation):
    """The master stands still from the first outputs on; a node may crash soon after it is back."""

    def __init__(self, seed: int, ordering: str, *, crash_after_s: float | None = None) -> None:
        drawn = without_faults(scenario(seed, STAGES, "exactly-once"))
        super().__init__(
            replace(
                drawn,
                policy=replace(drawn.policy, ordering=ordering),
                nodes=2, records=RECORDS, window=WINDOW, checkpoint_s=0.02, work=None,
                live=(None,), sink="memory", embedded=False, behind=None, drain_at_s=None,
                standby=False,
            )
        )  # fmt: skip
        self.before = self.while_away = self.unsettled = 0
        timeline = self.timeline
        timeline.at_time(AWAY_FROM_S, self._stop_master)
        timeline.at_time(BACK_AT_S - 0.01, self._look)
        if crash_after_s is not None:
            timeline.at_time(
                BACK_AT_S + crash_after_s, lambda: self.world.crash(self._nodes[0], "by the test")
            )

    def _sent(self) -> int:
        return sum(host.party.next for host in self._fronts if isinstance(host.party, Front))

    def _stop_master(self) -> None:
        [master] = self.masters.hosts
        master.away_until = BACK_AT_S
        self.before = self._sent()

    def _look(self) -> None:
        self.while_away = self._sent()
        for host in self._nodes:
            assert isinstance(host.party, Node)
            for step in host.party.assembly.keyed.values():
                assert isinstance(step, Speculative)
                self.unsettled += len(step.batches)


@pytest.mark.parametrize("ordering", ["speculative", "buffered"])
def test_outputs_go_on_while_the_master_stands_still(ordering: str) -> None:
    simulation = Away(4, ordering)
    outcome = simulation.run()
    assert not outcome.problem
    assert 0 < simulation.before < RECORDS // 2, "it is on its way when the master stops"
    assert simulation.while_away >= INFINITY, "all was read and sent"
    assert simulation.unsettled == 0, "states are settled without a master"
    assert not outcome.counted["recovery"]


def test_without_a_master_a_front_sends_no_more_than_its_window() -> None:
    with patch.object(DeliveryGossip, "deliver", lambda *_: None):
        simulation = Away(4, "speculative")
        assert not simulation.run().problem
    assert simulation.while_away <= simulation.before + WINDOW


def outcomes_of_crashes() -> Iterator[str]:
    """The problems of runs with a crash after a master that stood still has asked for a snapshot
    as of a time before its silence, and has committed a later one."""
    for seed in range(3, 7):
        yield Away(seed, "speculative", crash_after_s=0.01).run().problem


def test_a_snapshot_as_of_a_time_before_the_silence_is_refused() -> None:
    refused = []
    refuse = Snapshotter.refuse

    def noted(self: Snapshotter, number: int, time: int) -> Post:
        refused.append(number)
        return refuse(self, number, time)

    with patch.object(Snapshotter, "refuse", noted):
        assert {*outcomes_of_crashes()} == {""}
    assert refused


def test_if_it_were_taken_it_would_be_wrong() -> None:
    with patch.object(Snapshotter, "refuse", Snapshotter.prepare):
        assert any("NotDeterministic" in problem for problem in outcomes_of_crashes())
