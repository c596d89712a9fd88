"""Dead letters are logged at once, and then at most twice a minute."""

from __future__ import annotations

import pytest

from driftline.deploy.roles.consumer import DeadLetters
from driftline.engine.events import FIELDS
from driftline.engine.operators.steps import FAILURES
from driftline.engine.wire.bundles import Item


def failure(time: int) -> Item:
    payload = "divide", "None", 0, "ZeroDivisionError: by zero", "f.py:3: 12 / n", ""
    return Item((time, 1), FAILURES, payload)


def test_first_dead_letter_is_logged_at_once_and_later_ones_as_a_count(
    caplog: pytest.LogCaptureFixture,
) -> None:
    letters = DeadLetters("out/dead-letters")
    letters.add_failures(5.0, [])
    assert not caplog.messages
    letters.add_failures(5.0, [failure(3)])
    for now in range(6, 35):
        letters.add_failures(float(now), [failure(now), failure(now + 1)])
    letters.log_if_due(35.0)  # no more failures, but the next line is due
    letters.log_if_due(99.0)
    last = "operator 'divide' failed at record {} of input 1: ZeroDivisionError: by zero; at: {}"
    line = "f.py:3: 12 / n"
    assert caplog.messages == [
        f"1 dead letter: {last.format(3, line)}; set aside in out/dead-letters",
        f"58 more dead letters: the last one: {last.format(35, line)}; "
        "set aside in out/dead-letters",
    ]
    assert getattr(caplog.records[1], FIELDS) == {
        "event": "dead-letters",
        "count": 58,
        "directory": "out/dead-letters",
        "operator": "divide",
        "label": "[35, 1]",
        "error": "ZeroDivisionError: by zero",
        "line": line,
    }


def test_error_with_line_breaks_is_one_line_and_complete_in_the_fields(
    caplog: pytest.LogCaptureFixture,
) -> None:
    letters = DeadLetters("out/dead-letters")
    error = "ValueError: unknown tea\n12:00:00.000 info    run     \x1b[8m"
    payload = ("divide", "None", 0, error, "f.py:3: 12 / n", "")
    letters.add_failures(1.0, [Item((3, 1), FAILURES, payload)])
    assert r"unknown tea\n12:00:00.000 info    run     \x1b[8m; at: f.py:3" in caplog.messages[0]
    assert getattr(caplog.records[0], FIELDS)["error"] == error
