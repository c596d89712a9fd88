"""A slow function is logged, and does not cause a recovery."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]

FLOW = """
import time
from driftline import Flow, ValueState

def slow(record):
    time.sleep(float(record["text"]))
    return int(record["id"]) % 7

def count(key, total):
    total.set((total.get() or 0) + 1)
    return [key, total.get()]

flow = Flow("slow")
slowed = flow.source("records").map(slow, name="slow")
slowed.key_by(lambda k: k).scan(count, ValueState("n")).sink()
"""

HOLDS_THE_LOCK = """
import ctypes
from driftline import Flow

sleep = ctypes.PyDLL(None).usleep  # unlike CDLL, it keeps the interpreter's lock

def slow(record):
    sleep(int(float(record["text"]) * 1e6))
    return record["id"]

flow = Flow("holds the lock")
flow.source("records").map(slow, name="slow").sink()
"""


class SlowRun:
    """Run of a flow over records that take this long."""

    def __init__(
        self, directory: Path, seconds: list[float], *options: str, name: str = ""
    ) -> None:
        (directory / "slow.py").write_text(FLOW)
        (directory / "lock.py").write_text(HOLDS_THE_LOCK)
        source = directory / "in.jsonl"
        source.write_text(
            "".join(json.dumps({"id": i, "text": f"{s}"}) + "\n" for i, s in enumerate(seconds))
        )
        self.output = directory / "out"
        done = subprocess.run(
            [
                sys.executable, "-m", "driftline", "run", str(directory / (name or "slow.py:flow")),
                "--input", str(source), "--output", str(self.output), *options,
            ],
            cwd=ROOT, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        self.log_text = done.stderr
        assert done.returncode == 0, self.log_text

    @property
    def recoveries(self) -> list[str]:
        return re.findall(r"recovering: .*", self.log_text)

    @property
    def values(self) -> list[object]:
        found = [
            json.loads(line)
            for file in self.output.glob("*.jsonl")
            for line in file.read_text().splitlines()
        ]
        return [row["value"] for row in sorted(found, key=lambda row: list(row["t"]))]


def counts(records: int) -> list[object]:
    return [[i % 7, i // 7 + 1] for i in range(records)]


SHORT = ("--missing-after", "1", "--stalled-after", "1")


def test_slow_record_is_logged_and_completes_without_recovery(tmp_path: Path) -> None:
    run = SlowRun(tmp_path, [0, 0, 4.5, 0, 0], *SHORT, "--nodes", "2", "--slow-after", "1")
    assert not run.recoveries
    assert run.values == counts(5)
    reports = re.findall(r"node-\d has been busy for (\d) s with (.*)", run.log_text)
    assert [seconds for seconds, _ in reports] == ["1", "2", "4"] or len(reports) == 2
    assert all("source 'records'" in what and "label [" in what for _, what in reports)


def test_function_that_holds_the_gil_is_given_more_time(tmp_path: Path) -> None:
    """No thread of the process can run meanwhile: the process is reported, then given more time."""
    run = SlowRun(tmp_path, [0, 3.5, 0], *SHORT, name="lock.py")
    assert run.values == [0, 1, 2]
    assert len(run.recoveries) <= 2
    assert "is back after" in run.log_text
