"""The cases: every policy with every interval that means something to it."""

from driftline.bench.systems.cases import CHOICES, MICRO_BATCH, REAL_TIME, Case, cases
from driftline.engine.policy import POLICIES


def test_micro_batches_run_once_and_last() -> None:
    rows = cases(CHOICES, [50, 500])
    assert [row.policy for row in rows[-2:]] == [MICRO_BATCH, REAL_TIME]
    assert [row.micro_batch for row in rows].count(True) == 2
    assert {row.policy for row in rows} == {*POLICIES, MICRO_BATCH, REAL_TIME}


def test_policies_without_an_interval_run_once() -> None:
    assert cases(["exactly-once", "strong-productions", "none", "two-phase"], [50, 500]) == [
        Case("strong-productions", None),
        Case("none", None),
        Case("exactly-once", 50),
        Case("two-phase", 50),
        Case("exactly-once", 500),
        Case("two-phase", 500),
    ]
