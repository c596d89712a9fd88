"""A million keys with one or two records each: memory stays flat, and state has only open keys.

SOAK_KEYS=10_000_000 pytest -m soak -n 0 -s tests/soak/test_many_keys.py

A state with a time to live, and windows; event time moves over 100 times to live. The plot is in
`out/soak-many-keys.png`. A million keys take five to fifteen minutes.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from select import select
from time import monotonic

import pytest

from driftline.engine.snapshots.merging import read_segment
from driftline.engine.snapshots.savepoint import Savepoint, open_savepoint
from tests.deploy.local.command import ROOT, driftline, lines
from tests.soak.live.samples import Samples
from tests.soak.many_keys.flow import KEYS, RECORDS, SHOWN, TTL_US, TTLS, record

pytestmark = [pytest.mark.soak, pytest.mark.timeout(4 * 3600)]

PLOT = ROOT / "out" / "soak-many-keys.png"
FLOW = "tests.soak.many_keys.flow"

SETTLED = 1 / 5
"""Share of the records after which memory has to be flat."""

MEMORY_GROWTH_MAX, MEMORY_MORE_MAX_MIB = 1.1, 8

REPORT_EVERY_S = 10.0
TIMEOUT_S = 300.0


class ManyKeysRun:
    """`driftline run` of the flow, observed from outside."""

    def __init__(self, directory: Path) -> None:
        self.output = directory / "out"
        self.log = directory / "log.jsonl"
        words = [
            sys.executable, "-m", "driftline", "run", f"{FLOW}:flow", "--nodes", "2",
            "--input", f"python:{FLOW}:Keys", "--output", str(self.output),
            "--max-in-flight", "2048", "--log-json",
        ]  # fmt: skip
        with self.log.open("w") as log:
            self.process = subprocess.Popen(words, cwd=ROOT, stderr=log, text=True)
        self.samples = Samples(self.process.pid)
        self.began = monotonic()
        self.settled_at = 0.0
        """Time from which memory has to be flat, in seconds since the start."""

    def records(self) -> int:
        """Return the number of records in the latest line of figures."""
        events = [json.loads(line) for line in self.log.read_text().splitlines()]
        figures = [event["fields"] for event in events if event["event"] == "progress"]
        return int(figures[-1]["records"]) if figures else 0

    def observe(self) -> float:
        """Take samples until all records are processed; return the seconds."""
        next_report = REPORT_EVERY_S
        while (records := self.records()) < RECORDS:
            assert self.process.poll() is None, self.log.read_text()[-2000:]
            now = monotonic() - self.began
            if not self.settled_at and records >= SETTLED * RECORDS:
                self.settled_at = now
            self.samples.take(now)
            if now >= next_report:
                next_report += REPORT_EVERY_S
                memory = self.samples.medians("rss_mib", now - REPORT_EVERY_S, now + 1)
                print(f"{now:.0f} s, {records} of {RECORDS} records, MiB: {memory}", flush=True)
            select((), (), (), 1.0)
        return monotonic() - self.began

    def end(self) -> None:
        """Drain the run."""
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(TIMEOUT_S) == 128 + signal.SIGTERM, self.log.read_text()[-2000:]


def test_memory_stays_flat_over_many_keys(tmp_path: Path) -> None:
    run = ManyKeysRun(tmp_path)
    try:
        ended = run.observe()
        run.end()
    finally:
        run.process.kill()
        PLOT.parent.mkdir(exist_ok=True)
        run.samples.draw(PLOT)
    saved, state = tmp_path / "saved", run.output / ".driftline" / "state"
    done = driftline("savepoint", f"{FLOW}:flow", "--state", state, "--output", saved)
    assert done.returncode == 0, done.stderr
    savepoint = open_savepoint(saved)
    check_state(savepoint)
    check_outputs(run.output, savepoint.time)
    check_flat(run, ended)


def check_state(savepoint: Savepoint) -> None:
    """Check that the snapshot has exactly the keys with an open time to live or window."""
    last = savepoint.time - 1
    watermark = record(last)["at"]
    recent = [record(number) for number in range(max(1, last - TTL_US // 1000 + 1), last + 1)]
    open_from = watermark - watermark % TTL_US
    open_windows = {seen["key"] for seen in recent if seen["at"] >= open_from}
    live = {seen["key"] for seen in recent if seen["at"] + TTL_US > watermark}
    for operator, expected in (("counted", live), ("windows", open_windows)):
        found = keys_in(savepoint, operator)
        print(f"{operator}: {len(found)} keys of {KEYS} in the snapshot")
        assert found == expected, operator


def keys_in(savepoint: Savepoint, operator: str) -> set[object]:
    """Return the keys of an operator that have state."""
    return {
        row[0]
        for group in range(savepoint.groups)
        for _, _, rows in read_segment(savepoint.segment(group, operator))
        for row in rows
        if len(row) == 3
    }


def check_outputs(output: Path, until: int) -> None:
    """Check the outputs of the selected keys."""
    seen = [found for number in range(1, until) if not (found := record(number))["key"] % SHOWN]
    so_far: dict[int, list[int]] = {}
    counts: Counter[tuple[int, int]] = Counter()
    windows: Counter[tuple[int, int]] = Counter()
    complete = record(until - 1)["at"] // TTL_US
    for each in seen:
        times = so_far.setdefault(each["key"], [])
        counts[each["key"], sum(at + TTL_US > each["at"] for at in times) + 1] += 1
        times.append(each["at"])
        windows[each["key"], each["at"] // TTL_US] += each["at"] // TTL_US < complete
    values = [json.loads(line)["value"] for line in lines(output)]
    assert Counter(tuple(each) for each in values if isinstance(each, list)) == counts
    rows = Counter((row["key"], row["times"]) for row in values if isinstance(row, dict))
    assert rows == Counter((key, times) for (key, _), times in windows.items() if times)


def check_flat(run: ManyKeysRun, ended: float) -> None:
    window = (ended - run.settled_at) / TTLS * 10
    early = run.settled_at, run.settled_at + window
    late = ended - window, ended + 1
    before, after = (run.samples.medians("rss_mib", *each) for each in (early, late))
    print("MiB", before, after, "peaks", run.samples.peaks("rss_mib"))
    for name, value in after.items():
        assert value <= before[name] * MEMORY_GROWTH_MAX + MEMORY_MORE_MAX_MIB, name
