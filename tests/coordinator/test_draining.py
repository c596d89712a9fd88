"""The time at which a run that is asked to end, ends: no front has sent anything beyond it."""

from __future__ import annotations

import pytest

from driftline.coordinator.draining import Draining
from driftline.engine.labels import INFINITY
from driftline.engine.policy import policy

File = tuple[int, bool, bool]
"""(time, live, ended) as a front says them."""


@pytest.mark.parametrize(
    ("first", "second", "until"),
    [
        ((31, False, False), (40, False, False), 40),
        ((51, False, True), (31, False, False), 51),
        ((51, False, True), (INFINITY, False, True), INFINITY),
        ((31, False, False), (900, True, False), 31),
        ((51, False, True), (900, True, False), 900),
        ((31, False, False), (900, True, True), 31),
        ((800, True, False), (900, True, True), 900),
    ],
    ids=[
        "two files",
        "a file that has ended before",
        "all ended",
        "a file beside a live source",
        "an ended file beside a live source",
        "a file beside a live source that has ended",
        "two live sources",
    ],
)
def test_the_end_is_behind_everything_that_was_sent(first: File, second: File, until: int) -> None:
    draining = Draining(["front-0", "front-1"], policy("exactly-once"))
    draining.drained("front-0", *first)
    assert draining.until is None
    for _ in range(2):
        draining.drained("front-1", *second)
        assert draining.until == until
