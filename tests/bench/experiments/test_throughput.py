"""Figures of several rounds become one, and a loss in any round is not forgotten."""

from io import StringIO

from rich.console import Console

from driftline.bench.experiments.rounds import Rounds
from driftline.bench.experiments.throughput import (
    UNDER_WAY,
    median_of,
    share_of_floor,
    spread,
    under_way,
)
from driftline.bench.measuring.meter import ThroughputResult
from driftline.bench.systems.cases import Case
from driftline.deploy.parties.window import WINDOW
from driftline.engine.policy import POLICIES


def result(rate: float) -> ThroughputResult:
    return ThroughputResult(rate, 100 * rate, 1.0, 1, 0)


def test_the_median_of_rounds_keeps_count_of_every_loss() -> None:
    rounds = [result(rate) for rate in (30.0, 10.0, 20.0)]
    assert median_of(rounds) == ThroughputResult(20.0, 2000.0, 1.0, 3, 0)


def test_the_meter_lets_more_under_way_than_the_front() -> None:
    assert all(under_way(Case(name, None)) >= UNDER_WAY > WINDOW for name in POLICIES)
    assert under_way(Case("two-phase", 1000)) > 10 * UNDER_WAY, "whole epochs are under way"


def test_a_share_of_the_floor_is_taken_within_each_round() -> None:
    case = Case("none", None)
    rates = [(None, 100.0), (case, 50.0), (None, 200.0), (case, 180.0), (None, 50.0), (case, 30.0)]
    rounds = Rounds([(of, result(rate)) for of, rate in rates])
    assert share_of_floor(case, rounds) == 0.6, "of 0.5, 0.9 and 0.6; not 50 of 100"


def test_a_case_that_failed_in_a_later_round_is_left_out_of_the_spread() -> None:
    steady, failed = Case("none", None), Case("micro-batch", None)
    runs = [(None, 100.0), (steady, 50.0), (failed, 5.0), (None, 120.0), (steady, 60.0)]
    rounds = Rounds([(of, result(rate)) for of, rate in runs], {failed: "Spark has ended"})
    out = StringIO()
    Console(file=out, width=100).print(spread([steady, failed], rounds))
    rows = [" ".join(line.split()) for line in out.getvalue().splitlines() if line.strip()]
    assert rows[0] == "Documents a second, over 2 rounds"
    assert rows[-2:] == ["floor 100 110 120", "none 50 55 60 50%"]
