"""However a run ends, no process remains, and the same command resumes it."""

from __future__ import annotations

import json
import random
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from time import monotonic

import pytest

ROOT = Path(__file__).resolve().parents[3]

BUSY = """
import re
from driftline import Flow

def busy(record):
    return re.match(r"(a+)+$", "a" * 40 + "b")  # holds the interpreter's lock for ever

flow = Flow("busy")
flow.source("lines").map(busy, name="busy").sink()
"""


class OrphanedRuns:
    """Runs of one flow on one directory, and their processes and outputs."""

    def __init__(self, directory: Path, *arguments: str) -> None:
        self.output = directory / "out"
        self.plain = [sys.executable, "-m", "driftline", "run", *arguments]
        self.command = [*self.plain, "--output", str(self.output), "--nodes", "2"]
        self.command += ["--snapshot-interval-ms", "50", "--max-in-flight", "1"]

    def start(self) -> subprocess.Popen[str]:
        return subprocess.Popen(self.command, cwd=ROOT, stderr=subprocess.PIPE, text=True)

    def children(self) -> list[int]:
        """Return the processes of runs on this directory, found by their command line."""
        found = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(OSError):
                words = path.read_bytes()
                if (
                    b"driftline.deploy.runtime.process" in words
                    and str(self.output).encode() in words
                ):
                    found.append(int(path.parent.name))
        return found

    def await_no_children(self) -> None:
        """Wait until no process remains; the kernel ends them one after the other."""
        deadline = monotonic() + 30
        while (left := self.children()) and monotonic() < deadline:
            select.select((), (), (), 0.01)
        assert not left

    def lines(self) -> list[str]:
        found = [
            line for file in self.output.glob("*.jsonl") for line in file.read_text().splitlines()
        ]
        return sorted(found, key=lambda line: list(json.loads(line)["t"]))


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[OrphanedRuns]:
    source = tmp_path / "in.jsonl"
    source.write_text("".join(json.dumps({"text": f"a b c{i}"}) + "\n" for i in range(150)))
    found = OrphanedRuns(tmp_path, "driftline.index", "--input", str(source))
    yield found
    found.await_no_children()


def kill_at_random(runs: OrphanedRuns, times: int, chance: random.Random) -> None:
    """Kill the parent at random times, complete the run, and compare with the reference."""
    for _ in range(times):
        process = runs.start()
        with suppress(subprocess.TimeoutExpired):
            process.wait(chance.choice((chance.uniform(0.2, 0.8), chance.uniform(0.2, 3))))
        process.kill()
        process.communicate()
    done = runs.start()
    _, log_text = done.communicate(timeout=90)
    assert done.returncode == 0, log_text
    reference = Path(f"{runs.output}-reference")
    subprocess.run([*runs.plain, "--output", str(reference), "--reference"], cwd=ROOT, check=True)
    [file] = reference.glob("*.jsonl")
    assert runs.lines() == file.read_text().splitlines()
    left = list(Path(runs.output / ".driftline" / "state").glob(".registry.*"))
    assert not left, f"{left}\n{log_text}"


def test_parent_may_be_killed_at_any_moment(runs: OrphanedRuns) -> None:
    kill_at_random(runs, 4, random.Random(1))


@pytest.mark.soak
def test_parent_may_be_killed_fifty_times(runs: OrphanedRuns) -> None:
    for seed in range(10):
        kill_at_random(runs, 5, random.Random(seed))


def test_termination_signal_ends_the_run_cleanly(runs: OrphanedRuns) -> None:
    number = signal.SIGHUP
    process = runs.start()
    while not list(runs.output.glob("*.jsonl")):
        assert process.poll() is None
    folder = Path((runs.output / ".driftline" / "state" / "sockets").read_text())
    assert folder.is_dir()
    process.send_signal(number)
    process.communicate(timeout=20)
    assert process.returncode == 128 + number
    assert not runs.children()
    assert not folder.exists()


def test_process_in_a_function_that_holds_the_gil_ends_with_its_parent(tmp_path: Path) -> None:
    (tmp_path / "busy.py").write_text(BUSY)
    (tmp_path / "in.txt").write_text("one\ntwo\n")
    runs = OrphanedRuns(tmp_path, str(tmp_path / "busy.py"), "--input", str(tmp_path / "in.txt"))
    process = runs.start()
    while len(runs.children()) < 3:
        assert process.poll() is None
    select.select((), (), (), 2.0)  # no sign shows that a node is in the function
    process.kill()
    process.communicate()
    runs.await_no_children()
