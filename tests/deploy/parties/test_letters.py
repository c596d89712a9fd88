"""Dead letters are told of at once, and then at most twice a minute."""

from __future__ import annotations

import pytest

from driftline.deploy.parties.letters import DeadLetters
from driftline.engine.events import FIELDS
from driftline.engine.order.steps import FAILURES
from driftline.engine.sources import BadRecord
from driftline.engine.wire.bundles import Item


def failure(time: int) -> Item:
    payload = "divide", "None", 0, "ZeroDivisionError: by zero", "f.py:3: 12 / n", ""
    return Item((time, 1), FAILURES, payload)


def test_the_first_failure_is_told_at_once_the_others_as_a_number_with_the_last_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    letters = DeadLetters("out/dead-letters")
    letters.failed(5.0, [])
    assert not caplog.messages
    letters.failed(5.0, [failure(3)])
    for now in range(6, 35):
        letters.failed(float(now), [failure(now), failure(now + 1)])
    letters.failed(35.0, [])  # no more failures, but it is time
    letters.failed(99.0, [])
    last = "operator 'divide' failed at record {} of input 1: ZeroDivisionError: by zero; at: {}"
    line = "f.py:3: 12 / n"
    assert caplog.messages == [
        f"1 dead letter in out/dead-letters: {last.format(3, line)}",
        f"58 more dead letters in out/dead-letters: the last one: {last.format(35, line)}",
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


def test_bad_records_are_told_with_their_file_and_reason(caplog: pytest.LogCaptureFixture) -> None:
    letters = DeadLetters("out/dead-letters/input-0.jsonl")
    letters.unreadable(5.0, [BadRecord(n, "in.jsonl", "no JSON", "x") for n in (4, 7)])
    letters.unreadable(6.0, [BadRecord(9, "in.jsonl", "no text", "y")])
    letters.tell(34.0)
    letters.tell(35.0)
    letters.tell(99.0)
    where = "in out/dead-letters/input-0.jsonl"
    assert caplog.messages == [
        f"2 dead letters {where}: the last one: in.jsonl, record 7: no JSON",
        f"1 more dead letter {where}: in.jsonl, record 9: no text",
    ]
