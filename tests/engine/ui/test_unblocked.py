"""A write never waits for a reader; what is lost is whole, counted, and told once."""

from __future__ import annotations

import fcntl
import io
import logging
import os
import pty
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
from rich.console import Console

from driftline.engine.ui.consoles import ReadLive
from driftline.engine.ui.unblocked import HELD_BYTES, Unblocked, unblocked

ROOT = Path(__file__).resolve().parents[3]
LIMIT_S = 30.0
PIPE_BYTES = 4096
LINES = 4 * HELD_BYTES // 100
"""More than a pipe and the file together hold."""


def line(number: int) -> str:
    return f"{number} ".ljust(99, ".") + "\n"


@dataclass
class Pipe:
    """A small pipe, and a file that writes to it."""

    file: Unblocked
    reading: int
    writing: int

    def fill(self) -> int:
        """Write until lines are lost. Returns how many were written."""
        began = monotonic()
        for number in range(LINES):
            self.file.write(line(number))
        assert monotonic() - began < LIMIT_S / 3, "it has waited for a reader"
        return LINES

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
    stream = io.TextIOWrapper(os.fdopen(writing, "wb", closefd=False))
    file = unblocked(stream)
    assert isinstance(file, Unblocked)
    yield Pipe(file, reading, writing)
    os.set_blocking(reading, False)
    while not file.wait(0.01):
        try:
            os.read(reading, 1 << 16)
        except BlockingIOError:
            continue
    os.close(reading)
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


def test_a_line_is_written_at_its_end_and_any_text_by_flush(pipe: Pipe) -> None:
    print("one", 2, file=pipe.file)
    assert os.read(pipe.reading, 100) == b"one 2\n", "one write"
    pipe.file.write("3: ")
    pipe.file.flush()
    pipe.file.buffer.write("ä\ud800".encode(errors="replace"))
    assert os.read(pipe.reading, 100) == "3: ä?".encode()


def test_lines_that_find_no_room_are_lost_whole_and_in_one_gap(
    pipe: Pipe, told: Callable[[int], list[logging.LogRecord]]
) -> None:
    pipe.fill()
    lost = told(1)
    assert [record.getMessage() for record in lost] == [
        "standard error: nobody reads it; it will lack lines"
    ]
    kept = pipe.read(lambda said: len(told(1)) == 2 or len(said) > 100 * LINES).decode()
    assert pipe.file.wait(LIMIT_S), "all has been written"
    while select([pipe.reading], [], [], 0)[0]:
        kept += os.read(pipe.reading, 1 << 16).decode()
    over = told(2)[1]
    count = vars(over)["fields"]["count"]
    assert over.getMessage() == f"standard error can be written again; it lacks {count} lines"
    kept_lines = kept.splitlines(True)
    assert kept_lines == [line(number) for number in range(len(kept_lines))]
    assert len(kept_lines) + count == LINES
    assert HELD_BYTES <= len(kept) <= HELD_BYTES + 2 * PIPE_BYTES
    pipe.file.write("after it\n")
    assert os.read(pipe.reading, 100) == b"after it\n"
    assert len(told(2)) == 2


def test_a_large_write_is_whole_if_nothing_waits(pipe: Pipe) -> None:
    large = "x" * 3 * HELD_BYTES + "\n"
    pipe.file.write(large)
    assert pipe.read(lambda said: said.endswith(b"\n")).decode() == large


def test_the_last_words_wait_for_a_bounded_time(pipe: Pipe) -> None:
    pipe.fill()
    assert not pipe.file.wait(0.1)
    pipe.read(lambda said: said.endswith(b"\n") and len(said) >= HELD_BYTES)
    assert pipe.file.wait(LIMIT_S)


def test_a_signal_handler_may_write_within_a_write(pipe: Pipe) -> None:
    def write(number: int, frame: object) -> None:
        pipe.file.write("in the handler\n")

    pipe.file.write("x" * 2 * PIPE_BYTES + "\n")  # nobody reads it
    before = signal.signal(signal.SIGALRM, write)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
        for _ in range(2000):
            pipe.file.write("x\n")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    said = pipe.read(lambda said: said.count(b"x\n") == 2001).decode()
    assert said.count("\n") > 2001
    assert "in the handler\n" in said


def test_threads_that_write_at_once_tear_no_lines(pipe: Pipe) -> None:
    texts = [str(n) * 50 + "\n" for n in range(4)]
    threads = [
        threading.Thread(target=lambda text=text: [pipe.file.write(text) for _ in range(200)])
        for text in texts
    ]
    for thread in threads:
        thread.start()
    said = pipe.read(lambda said: said.count(b"\n") == 800).decode().splitlines(True)
    assert {text: said.count(text) for text in texts} == dict.fromkeys(texts, 200)


def test_a_copy_of_the_process_speaks_though_the_original_held_the_lock(pipe: Pipe) -> None:
    pipe.fill()  # the thread is in the midst of a write, and lines wait
    copy = os.fork()
    if not copy:
        status = 1
        try:
            pipe.file.write("said by the copy\n")
            status = 0 if pipe.file.wait(LIMIT_S) else 2
        finally:
            os._exit(status)
    said = pipe.read(lambda said: b"said by the copy\n" in said)
    assert os.waitpid(copy, 0)[1] == 0
    assert said.count(b"said by the copy\n") == 1


def test_a_reader_that_is_gone_is_no_trouble() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as stream:
        file = unblocked(stream)
        for number in range(LINES):
            file.write(line(number))
        assert isinstance(file, Unblocked)
        assert file.wait(LIMIT_S)


def test_a_device_without_room_is_told_as_that_and_written_to_once_it_has(
    told: Callable[[int], list[logging.LogRecord]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("driftline.engine.ui.unblocked.AGAIN_S", 0.01)
    with open("/dev/full", "w") as stream, open("/dev/null", "w") as empty:
        file = unblocked(stream)
        assert isinstance(file, Unblocked)
        for number in range(LINES):
            file.write(line(number))
        [record] = told(1)
        reason = "standard error: No space left on device; it will lack lines"
        assert record.getMessage() == reason
        began = monotonic()
        assert not file.wait(LIMIT_S)
        assert monotonic() - began < LIMIT_S / 2, "nobody waits for a full disk"
        os.dup2(empty.fileno(), stream.fileno())
        over = told(2)[1].getMessage()
        assert over.startswith("standard error can be written again; it lacks ")
        assert file.wait(LIMIT_S)


def test_a_stream_without_descriptor_stays_as_it_is() -> None:
    stream = io.StringIO()
    assert unblocked(stream) is stream
    memory = io.TextIOWrapper(io.BytesIO())
    assert unblocked(memory) is memory


def test_a_live_view_is_not_drawn_while_the_terminal_stands_still() -> None:
    terminal, shown = pty.openpty()
    with os.fdopen(shown, "w") as stream:
        file = unblocked(stream)
        assert isinstance(file, Unblocked)
        assert file.isatty()
        console = Console(file=file, force_terminal=True, width=60)
        live = ReadLive("the figures", console=console, auto_refresh=False)
        live.start()
        live.refresh()
        drawn = b""
        while b"the figures" not in drawn:  # it may come in two pieces
            assert select([terminal], [], [], LIMIT_S)[0], drawn
            drawn += os.read(terminal, 1 << 16)
        file.write("x" * (HELD_BYTES // 2))
        file.flush()
        assert file.behind
        before = file.waiting
        live.refresh()
        assert file.waiting == before
        console.print("a line")
        assert file.waiting > before
        live.stop()
        while not file.wait(0.01):
            os.read(terminal, 1 << 16)
    os.close(terminal)


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
