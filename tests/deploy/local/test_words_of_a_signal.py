"""What a run says when a signal ends it, and what the next call of its command then does."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections import Counter
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from driftline import Producer
from tests.deploy.local.run_copies import LIMIT_S, Place, free_port, kill, run, wait_until

SNAPSHOT, NO_SNAPSHOT = "delivered, and a last snapshot is written. Another", "delivered. Another"
ON = "ended in good order by SIGTERM: the same command goes on from here"
ANEW = "ended in good order by SIGTERM: the same command begins with an empty state"
WITH_SNAPSHOT = r"goes on from snapshot \d+"
VERIFIED = r"goes on from snapshot \d+( \(the state before [^)]+\))?\."


@dataclass(frozen=True)
class Row:
    """The words of a policy: at the signal, at the end, of `verify`, and of the next call."""

    signal: str
    file_ends: str
    live_ends: str
    file_verified: str
    live_verified: str
    goes_on: str
    file_again: bool = False
    """Whether the next call reads a file from its beginning, and counts from 0."""


REPLAYING = Row(SNAPSHOT, ON, ON, VERIFIED, VERIFIED, WITH_SNAPSHOT)
TABLE = {
    "exactly-once": REPLAYING,
    "two-phase": REPLAYING,
    "strong-productions": REPLAYING,
    "at-least-once": REPLAYING,
    "none": Row(
        NO_SNAPSHOT,
        ANEW,
        ANEW,
        "begins with an empty state",
        "begins with an empty state",
        "begins with an empty state",
        file_again=True,
    ),
}

WORD = "w"

POLICIES = [
    each if each in ("exactly-once", "none") else pytest.param(each, marks=pytest.mark.soak)
    for each in TABLE
]


def stop(process: subprocess.Popen[str]) -> str:
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 143, said
    return said


def has_lines(place: Place, count: int) -> bool:
    return len(place.lines()) >= count


def counts(place: Place) -> Counter[int]:
    """How often each number of `WORD` was delivered: a count from 1 on for each state."""
    return Counter(json.loads(line)["value"]["count"] for line in place.lines())


def verified(place: Place) -> str:
    done = run("verify", str(place.output), "--state", str(place.state))
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("policy", POLICIES)
def test_a_file_is_read_on_as_the_words_say(tmp_path: Path, policy: str) -> None:
    row, records = TABLE[policy], 1500
    source = tmp_path / "in.jsonl"
    source.write_text(f'{{"text": "{WORD}"}}\n' * records)
    place = Place(tmp_path / "run", policy, str(source))
    process = place.start("--window", "2")
    try:
        wait_until(partial(has_lines, place, 1), "an output")
        said = stop(process)
        first = len(place.lines())
        assert 0 < first < records
        assert row.signal in said
        assert row.file_ends in said
        assert re.search(row.file_verified, verified(place))
        process = place.start()
        _, said = process.communicate(timeout=LIMIT_S)
    finally:
        if process.poll() is None:
            kill(process)
    assert process.returncode == 0, said
    assert re.search(row.goes_on, said), said
    if row.file_again:
        assert counts(place) == Counter(range(1, first + 1)) + Counter(range(1, records + 1))
    else:
        assert counts(place) == Counter(range(1, records + 1))


@pytest.mark.parametrize("policy", POLICIES)
def test_records_of_producers_are_delivered_once_over_both_calls(
    tmp_path: Path, policy: str
) -> None:
    row, records = TABLE[policy], 200
    place = Place(tmp_path / "run", policy, f"tcp://127.0.0.1:{free_port()}")
    said = ""
    for call in (1, 2):
        process = place.start()
        try:
            with Producer(place.source, f"p{call}", timeout_s=LIMIT_S) as producer:
                for _ in range(records):
                    producer.send({"text": WORD})
            wait_until(partial(has_lines, place, call * records), "their outputs")
            said = stop(process)
        finally:
            if process.poll() is None:
                kill(process)
        assert row.signal in said
        assert row.live_ends in said
        assert re.search(row.live_verified, verified(place))
    assert re.search(row.goes_on, said), said
    if row.file_again:  # with an empty state
        assert counts(place) == Counter(dict.fromkeys(range(1, records + 1), 2))
    else:
        assert counts(place) == Counter(range(1, 2 * records + 1))
