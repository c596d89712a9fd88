"""A row is held to what its policy promises, and to nothing else."""

import pytest

from driftline.bench.measuring.meter import LatencyResult, percentiles
from driftline.bench.report.promises import broken_promises
from driftline.bench.report.rows import LatencyRow
from driftline.bench.systems.cases import FLOOR, MICRO_BATCH, Case


def run(lost: int, duplicated: int) -> LatencyResult:
    return LatencyResult(1, percentiles([1.0]), percentiles([0.0]), lost, duplicated)


@pytest.mark.parametrize(
    ("policy", "broken"),
    [
        (FLOOR, 2),
        ("none", 0),
        ("at-least-once", 1),
        ("exactly-once", 2),
        ("two-phase", 2),
        ("strong-productions", 2),
        (MICRO_BATCH, 2),
    ],
)
def test_a_broken_promise_is_one_that_was_given(policy: str, broken: int) -> None:
    row = LatencyRow(Case(policy, None), [run(1, 1)])
    assert len(broken_promises([row])) == broken


def test_a_single_run_breaks_the_promise_and_the_row_is_named() -> None:
    rows = [
        LatencyRow(Case("exactly-once", 50), [run(0, 0)] * 3),
        LatencyRow(Case("exactly-once", 1000, durable=True), [run(0, 0), run(5, 0), run(0, 0)]),
    ]
    assert broken_promises(rows) == [
        "exactly-once, checkpoint every 1000 ms, durable ends has lost 5 records"
    ]
