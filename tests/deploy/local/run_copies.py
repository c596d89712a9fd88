"""A killed run, and copies of its directories from two moments."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep

from driftline.coordinator.registry import ClusterState, FileRegistry
from driftline.deploy.producer import Producer
from driftline.engine.errors import DriftlineError
from tests.deploy.local.command import ROOT, WORDCOUNT, call, count_lines

FLOW = WORDCOUNT
RECORDS = 600
LIMIT_S = 60.0


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """Wait until another process has brought about a condition."""
    deadline = monotonic() + LIMIT_S
    while not condition():
        assert monotonic() < deadline, f"not within {LIMIT_S} s: {what}"
        sleep(0.01)


def text(number: int) -> str:
    """Return the text of a record, with words for both nodes."""
    return f"a b{number % 3} c{number % 40} d{number % 7}"


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@dataclass
class RunPlace:
    """Directories and options of a run."""

    root: Path
    policy: str
    source: str
    """Its input file, or the address at which it receives records."""

    @property
    def state(self) -> Path:
        return self.root / "state"

    @property
    def output(self) -> Path:
        return self.root / "out"

    def command(self, *more: str) -> list[str]:
        return [
            "run", str(FLOW), "--input", self.source, "--output", str(self.output),
            "--state", str(self.state), "--nodes", "2", "--policy", self.policy,
            "--snapshot-interval-ms", "40", *more,
        ]  # fmt: skip

    def start(self, *more: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "driftline", *self.command(*more)],
            cwd=ROOT,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def registry(self) -> ClusterState | None:
        return FileRegistry(self.state / "registry").read()

    def lines(self) -> list[str]:
        files = self.output.glob("*.jsonl")
        return [line for file in files for line in file.read_text().splitlines()]

    def copy(self, name: str) -> RunPlace:
        """Copy all directories in their present state."""
        to = self.root.parent / name
        for part in ("state", "out"):
            shutil.copytree(self.root / part, to / part, dirs_exist_ok=True)
        return RunPlace(to, self.policy, self.source)

    def problem(self) -> str:
        """Return what is wrong with the outputs; empty if nothing is."""
        found = [json.loads(line) for line in self.lines()]
        values = Counter((item["value"]["word"], item["value"]["count"]) for item in found)
        words = Counter(word for n in range(RECORDS) for word in text(n).split())
        wanted = Counter((w, i) for w, count in words.items() for i in range(1, count + 1))
        if values != wanted:
            return f"{values.total()} outputs instead of {wanted.total()}"
        if self.policy == "exactly-once":
            for file in self.output.glob("*.jsonl"):
                labels = [json.loads(line)["t"] for line in file.read_text().splitlines()]
                if labels != sorted(labels):
                    return f"{file.name} is out of order"
        return ""


def signal_all(process: subprocess.Popen[str], number: signal.Signals) -> None:
    os.killpg(process.pid, number)


def interrupted(root: Path, policy: str) -> tuple[RunPlace, RunPlace]:
    """Kill a run; return copies of its directories from an earlier moment and from its end.

    Both copies are of one session. The earlier one is made while all processes are suspended.
    """
    source = root / "in.jsonl"
    source.write_text("".join(json.dumps({"text": text(i)}) + "\n" for i in range(RECORDS)))
    place = RunPlace(root / "run", policy, str(source))
    process = place.start("--max-in-flight", "1")
    try:
        wait_until(lambda: count_lines(place.output) > RECORDS / 2, "some outputs")
        wait_until(lambda: _snapshots(place) > 1, "some snapshots")
        stop(process)
        old = place.copy("old")
        version = _snapshots(place)
        signal_all(process, signal.SIGCONT)
        wait_until(lambda: count_lines(place.output) > RECORDS * 2, "more outputs")
        wait_until(lambda: _snapshots(place) > version + 3, "more snapshots")
    finally:
        kill(process)
    return old, place.copy("now")


def received(root: Path, policy: str) -> tuple[RunPlace, RunPlace]:
    """Do the same with a run that has received all its records from a producer."""
    place = RunPlace(root / "run", policy, f"tcp://127.0.0.1:{free_port()}")
    process = place.start()
    try:
        with Producer(place.source, "p", timeout_s=LIMIT_S) as producer:
            for number in range(RECORDS // 2):
                producer.send({"text": text(number)})
            producer.flush()
            wait_until(lambda: count_lines(place.output) == 2 * RECORDS, "their outputs")
            wait_until(lambda: _snapshots(place) > 0, "a snapshot")
            stop(process)
            old = place.copy("old")
            before = _snapshots(place)
            signal_all(process, signal.SIGCONT)
            sleep(1.2)  # times are reserved a second ahead: the copy lacks later ones
            for number in range(RECORDS // 2, RECORDS):
                producer.send({"text": text(number)})
        wait_until(lambda: count_lines(place.output) == 4 * RECORDS, "all outputs")
        wait_until(lambda: _snapshots(place) > before, "another snapshot")
    finally:
        kill(process)
    return old, place.copy("now")


def _snapshots(place: RunPlace) -> int:
    state = place.registry()
    return state.snapshots[0].number if state is not None and state.snapshots else 0


def stop(process: subprocess.Popen[str]) -> None:
    """Suspend all processes of a run; return once all their threads are stopped."""
    signal_all(process, signal.SIGSTOP)
    wait_until(lambda: thread_states(process.pid) <= set("TZ"), "all threads stand still")


def kill(process: subprocess.Popen[str]) -> None:
    """Kill all processes of a run; return once none of them can write any more."""
    signal_all(process, signal.SIGKILL)
    process.communicate()
    wait_until(lambda: thread_states(process.pid) <= set("Z"), "all processes have ended")


def thread_states(group: int) -> set[str]:
    """Return the states of all threads of a process group, as letters of `/proc`.

    Signals take effect with a delay: a thread first leaves its current system call.
    """
    states = set()
    for file in Path("/proc").glob("[0-9]*/task/*/stat"):
        with suppress(FileNotFoundError, ProcessLookupError):
            state, _, its_group = file.read_text().rpartition(") ")[2].split()[:3]
            if int(its_group) == group:
                states.add(state)
    return states


def end(place: RunPlace, *more: str) -> tuple[int, str]:
    """Let a run and its producer, if it has one, complete; return the exit status and the log."""
    if "://" not in place.source:
        done = call(*place.command(*more))
        return done.returncode, done.stderr
    process = place.start(*more)
    try:
        _send_all(place.source, process)
        _, log_text = process.communicate(timeout=LIMIT_S)
    finally:
        if process.poll() is None:
            kill(process)
    return process.returncode, log_text


def _send_all(address: str, process: subprocess.Popen[str]) -> None:
    """Send all records, as a producer does that restarts without any state."""
    while process.poll() is None:
        try:
            with Producer(address, "p", timeout_s=1.0) as producer:
                for number in range(producer.acknowledged, RECORDS):
                    producer.send({"text": text(number)})
                producer.end()
            return
        except DriftlineError:
            continue  # the run is not listening yet, or has ended
