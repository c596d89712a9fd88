"""While consumers are slow, few bytes of outputs wait for them, and the outcome is right."""

from __future__ import annotations

from dataclasses import replace
from unittest.mock import patch

import pytest

from driftline.deploy.node.pace import Brake
from driftline.deploy.parties.master import STALLED_AFTER_S
from driftline.deploy.simulation.scenarios.flows import SIMULATED
from driftline.deploy.simulation.scenarios.scenario import scenario, without_faults
from driftline.deploy.simulation.scenarios.troubles import Behind
from driftline.deploy.simulation.simulation import Simulation
from driftline.engine.policy import POLICIES

[COUNTS] = [flow for flow in SIMULATED if flow.spec.endswith(":counts")]

WAITING = 1000


def simulated(name: str, behind: Behind) -> Simulation:
    what = replace(
        without_faults(scenario(4, COUNTS, name)),
        records=250, window=6, work=None, live=(None,), sink="memory", embedded=False,
        behind=behind,
    )  # fmt: skip
    return Simulation(what)


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("seconds", [0.5, STALLED_AFTER_S + 2.0])
def test_little_waits_for_a_slow_consumer_and_the_outcome_is_right(
    name: str, seconds: float
) -> None:
    simulation = simulated(name, Behind(seconds, 3 * seconds, WAITING))
    outcome = simulation.run()
    assert not outcome.problem
    assert outcome.counted["slow consumer"] >= 2
    assert not outcome.counted["recovery"], "what waits is not lost"
    assert simulation.waiting_bytes < 3 * WAITING


@pytest.mark.parametrize("name", ["none", "at-least-once", "two-phase"])
def test_without_the_brake_everything_waits(name: str) -> None:
    with patch.object(Brake, "look", lambda *_: False):
        simulation = simulated(name, Behind(5.0, 15.0, WAITING))
        assert not simulation.run().problem
    assert simulation.waiting_bytes > 5 * WAITING
