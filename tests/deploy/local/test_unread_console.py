"""A terminal or a pipe that nobody reads stops no run: outputs, log file and signals go on."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import signal
import subprocess
import sys
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.local.run_copies import LIMIT_S, ROOT, wait_until

FLOW = """
import logging, time
from driftline import Flow

def tell(record):
    print("said of", record["id"])
    logging.getLogger("mine").warning(str(record["id"]).ljust(1500, "."))
    time.sleep(0.005)
    return record["id"]

def stand_still(number):
    while number >= 200:
        time.sleep(1)
    return number

chatty = Flow("chatty")
chatty.source("records").map(tell).sink()

stuck = Flow("stuck")
stuck.source("records").map(tell).map(stand_still).sink()
"""

RECORDS = 20_000
"""More than are worked off in the time of a test."""

PIPE_BYTES = 4096


class Unread:
    """A run whose standard error goes to a pipe or a terminal that nobody reads."""

    def __init__(self, directory: Path, flow: str, records: int, *, terminal: bool) -> None:
        (directory / "flows.py").write_text(FLOW)
        given = directory / "in.jsonl"
        given.write_text("".join(f'{{"id": {n}}}\n' for n in range(records)))
        self.log, self.output = directory / "log", directory / "out"
        self.reading, writing = pty.openpty() if terminal else os.pipe()
        if terminal:
            tty.setraw(writing)
        else:
            fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        command = [
            sys.executable, "-m", "driftline", "run", f"{directory / 'flows.py'}:{flow}",
            "--input", str(given), "--output", str(self.output),
            "--log-file", str(self.log), "--window", "20", "--checkpoint-ms", "100",
        ]  # fmt: skip
        self.process = subprocess.Popen(command, cwd=ROOT, stderr=writing, stdout=writing)
        os.close(writing)

    def logged(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []

    def has(self, text: str) -> Callable[[], bool]:
        """Whether the log file has a line with this text."""
        return lambda: any(text in line for line in self.logged())

    def outputs(self) -> int:
        return sum(len(file.read_text().splitlines()) for file in self.output.glob("*.jsonl"))

    def read(self, until: bytes) -> bytes:
        """Read what the run says until this text comes, or nothing more."""
        said = b""
        while until not in said and select.select([self.reading], [], [], LIMIT_S)[0]:
            try:
                more = os.read(self.reading, 1 << 16)
            except OSError:  # a terminal that nobody writes to any more
                break
            if not more:
                break
            said += more
        return said


@contextmanager
def unread(
    directory: Path, flow: str = "chatty", records: int = RECORDS, *, terminal: bool = False
) -> Iterator[Unread]:
    run = Unread(directory, flow, records, terminal=terminal)
    try:
        yield run
    finally:
        run.process.kill()
        run.process.wait()
        os.close(run.reading)


LOST = "standard error: nobody reads it; it will lack lines"
kinds = pytest.mark.parametrize("terminal", [False, True], ids=["pipe", "terminal"])


@kinds
def test_a_run_goes_on_and_says_how_many_lines_are_missing(tmp_path: Path, terminal: bool) -> None:
    with unread(tmp_path, terminal=terminal) as run:
        wait_until(run.has(LOST), "the log file says that nobody reads")
        before, lines = run.outputs(), len(run.logged())
        wait_until(lambda: run.outputs() > before + 100, "more outputs")
        wait_until(lambda: len(run.logged()) > lines, "more lines in the log file")
        assert sum(LOST in line for line in run.logged()) == 1
        said = run.read(b"it lacks ").decode()
        wait_until(run.has("standard error can be written again; it lacks"), "the log file, too")
        assert LOST not in said
        run.process.send_signal(signal.SIGTERM)
        said = run.read(b"ended in good order").decode()
        assert "ended in good order" in said
        assert run.process.wait(LIMIT_S) == 143


@kinds
def test_the_first_signal_ends_it_in_good_order(tmp_path: Path, terminal: bool) -> None:
    with unread(tmp_path, terminal=terminal) as run:
        wait_until(run.has(LOST), "the log file says that nobody reads")
        run.process.send_signal(signal.SIGTERM)
        assert run.process.wait(LIMIT_S) == 143
        assert run.has("ended in good order by SIGTERM")()


@kinds
def test_the_second_signal_ends_it_at_once(tmp_path: Path, terminal: bool) -> None:
    with unread(tmp_path, "stuck", terminal=terminal) as run:
        wait_until(run.has(LOST), "the log file says that nobody reads")
        run.process.send_signal(signal.SIGTERM)
        wait_until(run.has("SIGTERM: "), "the first signal is seen")
        run.process.send_signal(signal.SIGTERM)
        assert run.process.wait(LIMIT_S) == 143
        assert run.has("ended by SIGTERM")()
        assert not run.has("in good order by")()


def test_outputs_are_complete_and_results_are_written(tmp_path: Path) -> None:
    with unread(tmp_path, records=300) as run:
        assert run.process.wait(LIMIT_S) == 0
        values: list[Any] = [
            json.loads(line)["value"]
            for file in run.output.glob("*.jsonl")
            for line in file.read_text().splitlines()
        ]
        assert values == list(range(300))
        assert run.has("the run is over: 300 records")()
