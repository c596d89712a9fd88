"""A function may take as long as it likes: nobody recovers because of it, and it is told."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

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

def slow_count(record, total):
    time.sleep(float(record["text"]))
    total.set((total.get() or 0) + 1)
    return total.get()

late = Flow("slow in a keyed operator")
late.source("records").key_by(lambda r: int(r["id"]) % 7).scan(
    slow_count, ValueState("n"), name="slow count").sink()
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


class Run:
    """A run of a flow over records that take so long."""

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
        self.said = done.stderr
        assert done.returncode == 0, self.said

    @property
    def recoveries(self) -> list[str]:
        return re.findall(r"recovering: .*", self.said)

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
    run = Run(tmp_path, [0, 0, 4.5, 0, 0], *SHORT, "--nodes", "2", "--slow-after", "1")
    assert not run.recoveries
    assert run.values == counts(5)
    told = re.findall(r"node-\d has been busy for (\d) s with (.*)", run.said)
    assert [seconds for seconds, _ in told] == ["1", "2", "4"] or len(told) == 2
    assert all("source 'records'" in what and "label [" in what for _, what in told)


@pytest.mark.soak
@pytest.mark.parametrize("options", [("--ordering", "buffered"), (), ("--policy", "two-phase")])
def test_a_slow_keyed_operator_on_three_nodes_ends(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    run = Run(tmp_path, [0.05] * 60, *SHORT, "--nodes", "3", *options, name="slow.py:late")
    assert not run.recoveries
    assert sorted(map(str, run.values)) == sorted(str(i // 7 + 1) for i in range(60))


def test_function_that_holds_the_gil_is_given_more_time(tmp_path: Path) -> None:
    """Nothing in the process can speak meanwhile: it is missed, but not for ever."""
    run = Run(tmp_path, [0, 3.5, 0], *SHORT, name="lock.py")
    assert run.values == [0, 1, 2]
    assert len(run.recoveries) <= 2
    assert "is there again after" in run.said


@pytest.mark.soak
def test_function_killed_for_holding_the_gil_gets_more_time_on_restart(
    tmp_path: Path,
) -> None:
    """11 s until the first kill, 21 s until the second one."""
    run = Run(tmp_path, [0, 14, 0], *SHORT, name="lock.py")
    assert run.values == [0, 1, 2]
    assert run.said.count("it is killed, and started again") == 1


@pytest.mark.soak
@pytest.mark.parametrize(
    ("seconds", "options", "name"),
    [
        ([0.02] * 1000, (), "slow.py:flow"),
        ([0] * 5 + [20] + [0] * 5, (), "slow.py:flow"),
        ([0.1] * 600, ("--nodes", "3"), "slow.py:late"),
        ([0.1] * 600, ("--nodes", "3", "--policy", "strong-productions"), "slow.py:late"),
    ],
)
def test_slow_functions_complete_with_default_limits(
    tmp_path: Path, seconds: list[float], options: tuple[str, ...], name: str
) -> None:
    run = Run(tmp_path, seconds, *options, name=name)
    assert not run.recoveries
    assert len(run.values) == len(seconds)
