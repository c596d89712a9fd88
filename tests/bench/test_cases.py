"""The cases: every policy with every interval that means something to it."""

from driftline.bench.systems.cases import CHOICES, FLOOR, MICRO_BATCH, Case, cases
from driftline.engine.policy import POLICIES


def test_micro_batches_run_once_and_last() -> None:
    rows = cases(CHOICES, [50, 500])
    assert rows[-1] == Case(MICRO_BATCH, None)
    assert [row.is_micro_batch for row in rows].count(True) == 1
    assert {row.policy for row in rows} == {FLOOR, *POLICIES, MICRO_BATCH}


def test_policies_without_an_interval_run_once() -> None:
    assert cases(["exactly-once", "strong-productions", "none", "two-phase"], [50, 500]) == [
        Case(FLOOR, None),
        Case("strong-productions", None),
        Case("none", None),
        Case("exactly-once", 50),
        Case("two-phase", 50),
        Case("exactly-once", 500),
        Case("two-phase", 500),
    ]


def test_with_durable_ends_come_the_same_policies_and_a_floor_of_their_own() -> None:
    rows = cases(["none", "exactly-once", MICRO_BATCH], [50, 500], durable_ms=500)
    assert [row for row in rows if row.durable] == [
        Case(FLOOR, None, durable=True),
        Case("none", None, durable=True),
        Case("exactly-once", 500, durable=True),
    ]


def test_what_is_durable_is_told() -> None:
    assert Case(FLOOR, None).keeps == Case("none", None).keeps == []
    assert Case("two-phase", 50).keeps == Case(MICRO_BATCH, None).keeps == ["state"]
    assert Case("none", None, durable=True).keeps == ["inputs", "outputs"]
    assert Case("exactly-once", 50, durable=True).keeps == ["inputs", "state", "outputs"]
