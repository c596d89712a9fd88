"""It is never the meter that limits what is under way."""

from driftline.bench.experiments.throughput import UNDER_WAY, under_way
from driftline.bench.systems.cases import Case
from driftline.deploy.parties.window import WINDOW
from driftline.engine.policy import POLICIES


def test_the_meter_lets_more_under_way_than_the_front() -> None:
    assert all(under_way(Case(name, None)) >= UNDER_WAY > WINDOW for name in POLICIES)
    assert under_way(Case("two-phase", 1000)) > 10 * UNDER_WAY, "whole epochs are under way"
