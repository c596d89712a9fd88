"""A bit flips on a node's disk while it is down: the outcome is right, or the run says why not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from driftline.simulation.scenarios.scenario import scenario
from driftline.simulation.seeds import run_one

SEEDS = 90


@pytest.mark.parametrize(
    "policy",
    ["two-phase", "strong-productions", pytest.param("at-least-once", marks=pytest.mark.soak)],
)
def test_rot_is_told_or_changes_nothing(policy: str) -> None:
    rotten = refused = 0
    for seed in range(1, SEEDS + 1):
        what = scenario(seed, name=policy)
        outcome = run_one(replace(what, faults=replace(what.faults, rot=0.3), live=(None,)))
        assert not outcome.problem, f"seed {seed}: {outcome.problem}"
        rotten += outcome.counted["rotten node"] > 0
        refused += outcome.counted["stopped because of damage"]
    assert rotten > 5
    assert refused > 0 or policy == "at-least-once"
