"""A live run of half an hour, killed every ten seconds: memory stays flat and outputs correct.

SOAK_MINUTES=30 pytest -m soak -n 0 tests/soak/test_live_run.py

500 records a second, a new producer every minute, one record in twenty fails, and for a minute the
disk of the outputs is slow (if this process may mount one). The plot is in `out/soak.png`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from select import select
from time import monotonic, time

import pytest

from tests.soak.live.flow import fails
from tests.soak.live.samples import MIB, Samples
from tests.soak.live.slow_disk import SlowDisk, may_be_made, slow_disk

pytestmark = pytest.mark.soak

ROOT = Path(__file__).resolve().parents[2]
PLOT = ROOT / "out" / "soak.png"

MINUTES = float(os.environ.get("SOAK_MINUTES", "30"))
RATE = 500
KILL_EVERY_S = 10
SETTLED = 1 / 6
"""Share of the time after which all figures must be flat: five minutes of thirty."""

STORY_LINES_MAX = 10
CONTINUES = "running", "taken-over"

NOT_OF_KILLS = ("progress", "backpressure", "backpressure-over")

LATE_S = 30.0
"""Allowed delay of a record: recoveries, and the backlog of the slow minute."""

MEMORY_GROWTH_MAX, MEMORY_MORE_MAX_MIB = 1.15, 8


@dataclass(frozen=True, slots=True)
class Event:
    """Line of the log."""

    at: float
    """Seconds since the epoch."""
    name: str
    message: str
    fields: dict[str, object]

    @staticmethod
    def of(line: str) -> Event:
        entry = json.loads(line)
        at = datetime.fromisoformat(entry["time"]).timestamp()
        return Event(at, entry["event"], entry["message"], entry["fields"])

    def number(self, field: str) -> float:
        value = self.fields[field]
        assert isinstance(value, (int, float))
        return value


class LiveRun:
    """`driftline run` and its producers, observed from outside."""

    def __init__(self, directory: Path, output: Path) -> None:
        self.output = output
        self.errors = directory / "errors.txt"
        self.producers: dict[str, subprocess.Popen[str]] = {}
        words = [
            sys.executable, "-m", "driftline", "run", "tests.soak.live.flow",
            "--input", "tcp://127.0.0.1:0", "--output", str(output / "out"),
            "--state", str(directory / "state"), "--nodes", "2", "--on-error", "dead-letter",
            "--kill-every", str(KILL_EVERY_S), "--log-json",
        ]  # fmt: skip
        with self.errors.open("w") as errors:
            self.process = subprocess.Popen(words, cwd=ROOT, stderr=errors, text=True)
        self.samples = Samples(self.process.pid)
        self.began = monotonic()
        self.slow: tuple[float, float] = (0.0, 0.0)
        """When the disk of the outputs was slow, from and to (seconds since the epoch)."""
        self.sent: list[tuple[float, float]] = []
        """(start, end) of each producer, in seconds since the epoch."""

    def address(self) -> str:
        while "listening for producers on " not in (log_text := self.errors.read_text()):
            assert self.process.poll() is None, log_text
            select((), (), (), 0.05)
        return log_text.partition("listening for producers on ")[2].split()[0].strip('",')

    def add_producer(self, address: str, seconds: float) -> None:
        name = f"producer-{len(self.producers)}"
        self.sent.append((time(), time() + seconds))
        self.producers[name] = subprocess.Popen(
            [sys.executable, "-m", "tests.soak.live.producer", address, name, str(RATE),
             str(seconds)],
            cwd=ROOT, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def stored(self) -> dict[str, int]:
        """Return the number of stored records of each producer, as it reports at its end."""
        found = {}
        for name, process in self.producers.items():
            log_text, _ = process.communicate(timeout=600)
            assert process.returncode == 0
            found[name] = int(log_text)
        return found

    def end(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(120) == 128 + signal.SIGTERM, self.errors.read_text()[-2000:]

    def events(self) -> list[Event]:
        """Return the log, all lines of which are JSON."""
        return [Event.of(line) for line in self.errors.read_text().splitlines()]

    def lines(self, pattern: str) -> list[dict[str, object]]:
        return [
            json.loads(line)
            for file in sorted((self.output / "out").glob(pattern))
            for line in file.read_text().splitlines()
        ]


def test_live_run_memory_stays_flat_and_outputs_stay_correct(tmp_path: Path) -> None:
    with ExitStack() as stack:
        disk: SlowDisk | None = None
        output = tmp_path / "disk"
        if may_be_made():
            disk = stack.enter_context(slow_disk(output))
        run = LiveRun(tmp_path, output)
        stack.callback(run.process.kill)
        try:
            observe(run, disk)
        finally:
            PLOT.parent.mkdir(exist_ok=True)
            run.samples.draw(PLOT)
        check_outputs(run)
        check_log_after_kills(run.events())
        check_progress(run)
        check_flat(run.samples)


def observe(run: LiveRun, disk: SlowDisk | None) -> None:
    address = run.address()
    minute = 60 * min(1.0, MINUTES / 5)
    next_producer, slow_at = 0.0, 30 * MINUTES
    while (now := monotonic() - run.began) < 60 * MINUTES:
        assert run.process.poll() is None, run.errors.read_text()[-2000:]
        run.samples.take(now)
        if now >= next_producer:
            run.add_producer(address, minute)
            next_producer += minute
        if disk is not None and now >= slow_at:
            disk.slow_down(minute)
            run.slow = time(), time() + minute
            slow_at = float("inf")
        select((), (), (), 1.0)
    run.stored()
    run.end()


def check_outputs(run: LiveRun) -> None:
    """Check that each stored record has one output, or is a dead letter if it fails."""
    numbers: dict[object, list[int]] = {name: [] for name in run.producers}
    for line in run.lines("counts-*.jsonl"):
        value = line["value"]
        assert isinstance(value, dict)
        numbers[value["producer"]].append(value["number"])
        assert len(numbers[value["producer"]]) == value["count"]
    for name, stored in run.stored().items():
        assert numbers[name] == [n for n in range(1, stored + 1) if not fails(n)]
    failed = sum(fails(n) for stored in run.stored().values() for n in range(1, stored + 1))
    assert len(run.lines("dead-letters/*.jsonl")) == failed
    assert not run.lines("seen-*.jsonl")


def check_log_after_kills(events: list[Event]) -> None:
    """Check that at most ten lines follow each kill, without progress lines.

    The run continues after a recovery or under a new master.
    """
    relevant_events = [event for event in events if event.name not in NOT_OF_KILLS]
    kills = [i for i, event in enumerate(relevant_events) if event.name == "kill"]
    assert len(kills) >= 60 * MINUTES / KILL_EVERY_S / 2
    stories = [relevant_events[i:j] for i, j in pairwise(kills)]
    longest = max(stories, key=len)
    assert len(longest) <= STORY_LINES_MAX, "\n".join(event.message for event in longest)
    assert all(any(event.name in CONTINUES for event in story) for story in stories)


def check_progress(run: LiveRun) -> None:
    """Check that each progress line counts the sent records, within a few seconds."""
    events = run.events()
    for event in events:
        slow = run.slow[0] <= event.at <= run.slow[1] + LATE_S
        if event.name == "progress" and not slow:
            sent = sum(max(0.0, min(event.at, end) - start) for start, end in run.sent) * RATE
            assert sent - LATE_S * RATE <= event.number("records") <= sent + RATE, event.message
            assert event.number("outputs") <= event.number("records")
            assert event.number("undelivered") <= LATE_S * RATE
    [over] = [event for event in events if event.name == "run-ended"]
    assert over.number("records") == sum(run.stored().values())


def check_flat(samples: Samples) -> None:
    end = 60 * MINUTES
    window = end / 15
    early = SETTLED * end, SETTLED * end + window
    late = end - window, end
    print("peaks in MiB", samples.peaks("rss_mib"))
    for figure, factor, more in (
        ("rss_mib", MEMORY_GROWTH_MAX, MEMORY_MORE_MAX_MIB),
        ("descriptors", 1.0, 2),
        ("threads", 1.0, 1),
    ):
        before, after = samples.medians(figure, *early), samples.medians(figure, *late)
        print(figure, before, after)
        for name, value in after.items():
            assert value <= before[name] * factor + more, f"{figure} of {name}"
    assert max(samples.peaks("rss_mib").values()) < 1024 * MIB / MIB
