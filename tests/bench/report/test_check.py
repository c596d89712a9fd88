"""Nothing is killed in a benchmark, so no policy excuses an output that is lost or comes twice."""

import pytest

from driftline.bench.measuring.meter import LatencyResult, ThroughputResult, percentiles
from driftline.bench.report.check import ALL_RIGHT, check, wrong_rows
from driftline.bench.report.rows import LatencyRow, Row, ThroughputRow
from driftline.bench.systems.cases import CHOICES, FLOOR, Case


def run(lost: int, duplicated: int) -> LatencyResult:
    return LatencyResult(1, percentiles([1.0]), percentiles([0.0]), lost, duplicated)


@pytest.mark.parametrize("policy", [FLOOR, *CHOICES])
@pytest.mark.parametrize(("lost", "duplicated"), [(1, 0), (0, 1)])
def test_a_single_output_makes_a_row_wrong_whatever_its_policy(
    policy: str, lost: int, duplicated: int
) -> None:
    result = ThroughputResult(1.0, 1.0, 1.0, lost, duplicated)
    rows: list[Row] = [
        LatencyRow(Case(policy, None), [run(lost, duplicated)]),
        ThroughputRow(Case(policy, None), [result]),
    ]
    assert [len(wrong_rows([row])) for row in rows] == [1, 1]
    assert check(rows) == ""


def test_a_single_run_makes_its_row_wrong_and_the_row_is_named() -> None:
    rows = [
        LatencyRow(Case("exactly-once", 50), [run(0, 0)] * 3),
        LatencyRow(Case("exactly-once", 1000, durable=True), [run(0, 0), run(5, 1), run(0, 0)]),
    ]
    assert wrong_rows(rows) == [
        "exactly-once, checkpoint every 1000 ms, durable ends: 5 outputs are lost and 1 came "
        "twice, though nothing was killed; do not use its figures"
    ]


def test_what_was_checked_is_said_of_what_was_run() -> None:
    assert check([LatencyRow(Case("none", None), [run(0, 0)])]) == ALL_RIGHT
    assert check([LatencyRow(Case("none", None), [], "no Java")]) == ""
