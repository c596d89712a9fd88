"""How long ago something was, for people."""

from __future__ import annotations

import pytest

from driftline.deploy.run.report import _span


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.2, "0 s"),
        (45.0, "45 s"),
        (59.7, "1 min 0 s"),
        (105.0, "1 min 45 s"),
        (7200.0, "2 h 0 min"),
        (7384.0, "2 h 3 min"),
        (90_000.0, "1 d 1 h"),
    ],
)
def test_a_span_is_told_in_its_two_largest_units(seconds: float, text: str) -> None:
    assert _span(seconds) == text
