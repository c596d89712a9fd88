"""A policy is held to what it promises, and to nothing else."""

import pytest

from driftline.bench.report.promises import broken_promises
from driftline.bench.report.tables import LatencyRow
from driftline.bench.systems.cases import MICRO_BATCH


@pytest.mark.parametrize(
    ("policy", "broken"),
    [
        ("none", 0),
        ("at-least-once", 1),
        ("exactly-once", 2),
        ("two-phase", 2),
        ("strong-productions", 2),
        (MICRO_BATCH, 2),
    ],
)
def test_a_broken_promise_is_one_that_was_given(policy: str, broken: int) -> None:
    row = LatencyRow(policy, None, 1.0, 1.0, 1.0, 1.0, 1.0, lost=1, duplicated=1)
    assert len(broken_promises([row])) == broken
