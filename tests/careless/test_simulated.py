"""Careless functions have the same outputs on nodes as in the reference, under all faults."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from driftline.engine.policy import get_policy
from driftline.simulation.scenarios.scenario import draw_scenario
from driftline.simulation.seeds import run_one
from tests.careless.flows import ALL

SEEDS = 2


@pytest.mark.parametrize("name", ALL)
def test_every_seed_passes(name: str) -> None:
    problems = []
    for seed in range(1, SEEDS + 1):
        ordering = "speculative" if seed % 2 else "buffered"
        what = draw_scenario(seed, ALL[name])
        outcome = run_one(replace(what, policy=get_policy("exactly-once", ordering)))
        problems += [(seed, outcome.problem)] if outcome.problem else []
    assert problems == []
