"""Standard error of a command: no write waits for a reader; what is lost is whole and counted."""

from __future__ import annotations

import fcntl
import logging
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from select import select
from time import monotonic, sleep

import pytest

from driftline.engine.ui.unblocked import HELD_BYTES, Backlog

ROOT = Path(__file__).resolve().parents[3]
LIMIT_S = 30.0
PIPE_BYTES = 4096
LINES = 4 * HELD_BYTES // 100
"""More than a pipe and the backlog together hold."""


def line(number: int) -> bytes:
    return f"{number} ".ljust(99, ".").encode() + b"\n"


@dataclass
class Pipe:
    """A small pipe, and a backlog that writes to it."""

    file: Backlog
    reading: int

    def fill(self) -> None:
        """Write until lines are lost."""
        began = monotonic()
        for number in range(LINES):
            self.file.write(line(number))
        assert monotonic() - began < LIMIT_S / 3, "it has waited for a reader"

    def read(self, until: Callable[[bytes], bool]) -> bytes:
        """What comes, until that holds for it."""
        said, deadline = b"", monotonic() + LIMIT_S
        while not until(said):
            assert monotonic() < deadline, said[-200:]
            if select([self.reading], [], [], 0.01)[0]:
                said += os.read(self.reading, 1 << 16)
        return said


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    file = Backlog(writing)
    yield Pipe(file, reading)
    os.close(reading)  # the thread meets an error, and is done with what waits
    assert file.wait(LIMIT_S)
    os.close(writing)


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> Callable[[int], list[logging.LogRecord]]:
    """Waits for so many log lines, and returns all."""

    def wait(count: int) -> list[logging.LogRecord]:
        deadline = monotonic() + LIMIT_S
        while len(caplog.records) < count:
            assert monotonic() < deadline, caplog.messages
            sleep(0.002)
        return caplog.records

    return wait


def test_lines_that_find_no_room_are_lost_whole_and_in_one_gap(
    pipe: Pipe, told: Callable[[int], list[logging.LogRecord]]
) -> None:
    pipe.fill()
    assert [pipe.file.behind] == [True]
    assert [record.getMessage() for record in told(1)] == [
        "standard error: nobody reads it; it will lack lines"
    ]
    kept = pipe.read(lambda said: len(told(1)) == 2)
    assert pipe.file.wait(LIMIT_S), "all has been written"
    assert [pipe.file.behind] == [False]
    while select([pipe.reading], [], [], 0)[0]:
        kept += os.read(pipe.reading, 1 << 16)
    over = told(2)[1]
    count = vars(over)["fields"]["count"]
    assert over.getMessage() == f"standard error can be written again; it lacks {count} lines"
    kept_lines = kept.splitlines(True)
    assert kept_lines == [line(number) for number in range(len(kept_lines))]
    assert len(kept_lines) + count == LINES
    assert HELD_BYTES <= len(kept) <= HELD_BYTES + 2 * PIPE_BYTES
    pipe.file.write(b"after it\n")
    assert os.read(pipe.reading, 100) == b"after it\n"


def test_large_write_is_whole_if_nothing_waits(pipe: Pipe) -> None:
    large = b"x" * 3 * HELD_BYTES + b"\n"
    pipe.file.write(large)
    assert pipe.read(lambda said: said.endswith(b"\n")) == large


def test_signal_handler_may_write_within_a_write(pipe: Pipe) -> None:
    def write(number: int, frame: object) -> None:
        pipe.file.write(b"in the handler\n")

    pipe.file.write(b"x" * 2 * PIPE_BYTES + b"\n")  # nobody reads it
    before = signal.signal(signal.SIGALRM, write)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
        for _ in range(2000):
            pipe.file.write(b"x\n")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    said = pipe.read(lambda said: said.count(b"x\n") == 2001)
    assert b"in the handler\n" in said


def test_threads_that_write_at_once_tear_no_lines(pipe: Pipe) -> None:
    texts = [str(n).encode() * 50 + b"\n" for n in range(4)]
    threads = [
        threading.Thread(target=lambda text=text: [pipe.file.write(text) for _ in range(200)])
        for text in texts
    ]
    for thread in threads:
        thread.start()
    said = pipe.read(lambda said: said.count(b"\n") == 800).splitlines(True)
    assert {text: said.count(text) for text in texts} == dict.fromkeys(texts, 200)


def test_a_command_gives_its_last_words_a_moment_and_ends() -> None:
    script = (
        "import sys\n"
        "from driftline.engine.ui import unblocked\n"
        "unblocked.LAST_S = 0.2\n"
        "unblocked.unblock_standard_error()\n"
        "print('x' * 200_000, file=sys.stderr)\n"
        "print('said to standard output')\n"
        "1 / 0\n"
    )
    reading, writing = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-c", script], cwd=ROOT, stdout=subprocess.PIPE, stderr=writing
    )
    os.close(writing)
    assert process.stdout is not None
    assert process.stdout.read() == b"said to standard output\n"
    assert process.wait(LIMIT_S) == 1
    with os.fdopen(reading) as left:
        assert re.fullmatch("x+", left.read())


def test_an_error_that_ends_a_command_is_said_after_all_else() -> None:
    script = (
        "import sys\n"
        "from driftline.engine.ui.unblocked import unblock_standard_error\n"
        "unblock_standard_error()\n"
        "for n in range(500): print(n, file=sys.stdout if n % 2 else sys.stderr, flush=True)\n"
        "1 / 0\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False,
        stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert done.returncode == 1
    said = done.stdout.splitlines()
    assert said[:500] == [str(n) for n in range(500)], "in order, also with standard output"
    assert said[-1] == "ZeroDivisionError: division by zero"
