"""Processes that hang are replaced; without that no run with one comes to its end."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest

from driftline.deploy.host.children.hangs import HangDetector
from driftline.deploy.simulation.scenarios.live import Pace
from driftline.deploy.simulation.scenarios.scenario import Scenario, scenario, without_faults
from driftline.deploy.simulation.scenarios.troubles import Hang, Resized
from driftline.deploy.simulation.simulation import Simulation

HANGS = (Hang("node-0", 0.01), Hang("master", 0.01))


def hanging(seed: int, policy: str, *hangs: Hang) -> Scenario:
    return replace(without_faults(scenario(seed, name=policy)), hangs=hangs, standby=False)


@pytest.mark.parametrize("policy", ["exactly-once", "two-phase", "strong-productions"])
@pytest.mark.parametrize("hang", HANGS, ids=lambda hang: hang.host)
def test_a_process_that_hangs_is_replaced(hang: Hang, policy: str) -> None:
    for seed in range(1, 6):
        outcome = Simulation(hanging(seed, policy, hang)).run()
        assert not outcome.problem, outcome.scenario
        kind = hang.host.partition("-")[0]
        assert outcome.counted[f"crash {kind} after a silence"] == 1


def test_a_node_and_the_master_may_hang_at_the_same_time() -> None:
    for seed in range(1, 6):
        outcome = Simulation(hanging(seed, "exactly-once", *HANGS)).run()
        assert not outcome.problem, outcome.scenario
        assert outcome.counted["crash node after a silence"] >= 1


def resizing(seed: int) -> Scenario:
    """Of the nodes that are to take over one hangs at once, while slow disks copy the state;
    records come for long enough."""
    drawn = hanging(seed, "exactly-once", Hang("node-2", 0.0))
    pace = Pace(until_s=40.0, bursts=0, skew_s=0.0, unruly=0.0, producers=1)
    faults = replace(drawn.faults, job_s=0.1)
    others: dict[str, Any] = {"work": None, "behind": None, "drain_at_s": None, "faults": faults}
    return replace(drawn, nodes=2, resized=(Resized(3, 0.05),), live=(pace,), **others)


def test_a_node_that_hangs_while_it_joins_is_replaced() -> None:
    for seed in range(1, 6):
        outcome = Simulation(resizing(seed)).run()
        assert not outcome.problem, outcome.scenario
        assert outcome.counted["crash node after a silence"] == 1
        assert outcome.counted["resized"] == 1
        assert outcome.counted["recovery"] == 0, "the nodes of now go on"


@pytest.mark.parametrize("hang", HANGS, ids=lambda hang: hang.host)
def test_a_command_that_replaces_nobody_is_noticed(hang: Hang) -> None:
    healed = patch("driftline.deploy.simulation.simulation.HEAL_AFTER_S", 60.0)
    with healed, patch.object(HangDetector, "look", return_value=[]):
        outcome = Simulation(hanging(1, "exactly-once", hang)).run()
    assert "makes no progress" in outcome.problem
