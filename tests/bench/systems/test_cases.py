"""The cases: every policy with every interval that means something to it."""

from driftline.bench.systems.cases import (
    CHOICES,
    FLOOR,
    IPC,
    MICRO_BATCH,
    REAL_TIME,
    TCP_CURVE,
    Case,
    cases,
)
from driftline.engine.policy import POLICIES


def test_micro_batches_run_once_and_last() -> None:
    rows = cases(CHOICES, [50, 500])
    assert [row.policy for row in rows[-2:]] == [MICRO_BATCH, REAL_TIME]
    assert [row.micro_batch for row in rows].count(True) == 2
    assert {row.policy for row in rows} == {FLOOR, *POLICIES, MICRO_BATCH, REAL_TIME}


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


def test_each_policy_has_a_row_for_each_transport_but_with_durable_ends() -> None:
    rows = cases(["exactly-once"], [50], durable_ms=50, transports=[IPC, TCP_CURVE])
    assert rows == [
        Case(FLOOR, None),
        Case("exactly-once", 50),
        Case("exactly-once", 50, transport=TCP_CURVE),
        Case(FLOOR, None, durable=True),
        Case("exactly-once", 50, durable=True),
    ]
    assert str(rows[2]) == "exactly-once, tcp-curve, checkpoint every 50 ms"


def test_what_is_durable_is_told() -> None:
    assert Case(FLOOR, None).keeps == Case("none", None).keeps == []
    assert Case("two-phase", 50).keeps == Case(MICRO_BATCH, None).keeps == ["state"]
    assert Case("none", None, durable=True).keeps == ["inputs", "outputs"]
    assert Case("exactly-once", 50, durable=True).keeps == ["inputs", "state", "outputs"]
