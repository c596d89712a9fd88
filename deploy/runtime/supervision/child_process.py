"""Child processes: their pipes, their output as log lines, and the detection of their exits."""

from __future__ import annotations

import fcntl
import logging
import os
import select
import signal
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from time import monotonic
from typing import NamedTuple, Protocol

from driftline.deploy.runtime.logs import BEGIN, from_child, relay_record
from driftline.deploy.runtime.supervision import child
from driftline.deploy.runtime.supervision.child import TERMINATION_SIGNALS
from driftline.deploy.runtime.supervision.lifeline import KeepAlive, Lifeline
from driftline.engine.events import FIELDS, log

LINES_MAX = 500
"""Maximum number of output lines logged per pipe and second; further lines are counted."""

LAST_LINES_MAX = 20
"""Number of last output lines kept for the error that ends the run."""

LINE_BYTES = 1 << 18
"""Length at which a line is split."""

SHOWN_BYTES = 2000
"""Largest number of logged bytes of a line of text."""

READ_BYTES = 1 << 16

PIPE_BYTES = 1 << 20
"""Pipe capacity for output that this process has not read yet, where the kernel allows it."""

FLUSH_S = 5.0
"""Timeout in seconds for the last output of a dead process whose own child keeps the pipe open."""


class ChildOutput:
    """Standard error or standard output of a child: a pipe, and a thread that logs its contents.

    The thread reads at once, so the child never blocks for long. Log lines (`logs`) arrive on
    standard error, and are logged as they are. Other text is logged with the event ``print``: text
    from standard error, such as a traceback, at level warning, text from standard output at level
    info. Memory is bounded. No file is written, so no output is lost when the disk is full.
    """

    def __init__(self, process: str, *, is_stdout: bool = False) -> None:
        """`process`: the name of the child in log lines; `is_stdout`: whether the pipe is standard
        output, which contains no log lines."""
        self._process = process
        self._is_stdout = is_stdout
        self._last_lines: deque[bytes | str] = deque(maxlen=LAST_LINES_MAX)
        self._read_fd, self.fd = os.pipe()
        if hasattr(fcntl, "F_SETPIPE_SZ"):
            with suppress(OSError):
                fcntl.fcntl(self.fd, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._window_ends_at = 0.0
        self._logged = self._left_out = 0
        """Line counts of the current second."""

    def on_child_started(self) -> None:
        """Close the child's end in this process, and start reading."""
        os.close(self.fd)
        self._thread.start()

    def wait(self, timeout_s: float) -> None:
        """Wait until all output is read, at most `timeout_s`: a process that the child has started
        may keep the pipe open."""
        self._thread.join(timeout_s)

    @property
    def last(self) -> list[str]:
        """The last lines, without log lines below level warning."""
        return [_text(line) if isinstance(line, bytes) else line for line in self._last_lines]

    def _read(self) -> None:
        poller = select.poll()
        poller.register(self._read_fd, select.POLLIN)
        partial = b""
        while True:
            if self._left_out and not poller.poll(1000):
                self._end_second()
            data = os.read(self._read_fd, READ_BYTES)
            if monotonic() >= self._window_ends_at:
                self._end_second()
            *lines, partial = (partial + data).split(b"\n")
            if partial and (not data or len(partial) > LINE_BYTES):
                lines, partial = [*lines, partial], b""
            for line in lines:
                self._take(line)
            if not data:
                break
        self._end_second()
        with suppress(OSError):
            os.close(self._read_fd)

    def _take(self, line: bytes) -> None:
        text, *log_lines = [line] if self._is_stdout else line.split(BEGIN)
        self._take_text(text)
        for log_line in log_lines:
            record = from_child(log_line, self._process)
            if record is None:
                self._take_text(log_line)
                continue
            if record.levelno >= logging.WARNING:
                self._last_lines += record.getMessage().splitlines()
            if self._admit_line():
                relay_record(record)

    def _take_text(self, text: bytes) -> None:
        if text and not text.isspace():
            self._last_lines.append(text)
            if self._admit_line():
                self._print(_text(text))

    def _admit_line(self) -> bool:
        """Count a line. Return whether to log it."""
        if self._logged < LINES_MAX:
            self._logged += 1
            return True
        self._left_out += 1
        return False

    def _end_second(self) -> None:
        if self._left_out:
            text = f"... (too much output: {self._left_out} lines left out)"
            self._print(text, left_out=self._left_out)
        self._logged = self._left_out = 0
        self._window_ends_at = monotonic() + 1.0

    def _print(self, text: str, **fields: int) -> None:
        level = logging.INFO if self._is_stdout else logging.WARNING
        record = log.makeRecord(
            log.name, level, __file__, 0, text, (), None,
            extra={FIELDS: {"event": "print", **fields}},
        )  # fmt: skip
        record.processName = self._process
        relay_record(record)


def _text(line: bytes) -> str:
    return line[:SHOWN_BYTES].decode(errors="replace")


class Pipes(NamedTuple):
    """The child's ends of its pipes."""

    lifeline: int
    keep_alive: int
    stdout: int
    stderr: int


class ProcessHandle(Protocol):
    """A started process: `subprocess.Popen`, or one that was forked from a fork server."""

    pid: int

    @property
    def returncode(self) -> int | None:
        """The exit status, if `poll` or `wait` has seen the exit."""

    def poll(self) -> int | None:
        """Return the exit status; None: the process runs."""

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the exit, and return the status. Raises subprocess.TimeoutExpired."""

    def send_signal(self, number: int, /) -> None:
        """Send a signal, unless the process has ended."""

    def kill(self) -> None:
        """Kill the process, unless it has ended."""


Launch = Callable[[Pipes], ProcessHandle]
"""Starts a process with its pipes."""


class ChildProcess:
    """Child process with its lifeline, its signs of life and its output.

    `stderr`: keeps the last lines; `keep_alive`: receives the child's signs of life.
    """

    def __init__(self, name: str, launch: Launch, flow: str = "") -> None:
        """`name`: the process in log lines; `flow`: prefix of `name`, if there are several flows.

        Raises what `launch` raises.
        """
        self._lifeline = Lifeline()
        self.keep_alive = KeepAlive()
        name = f"{flow}/{name}" if flow else name
        self.stderr = ChildOutput(name)
        self._stdout = ChildOutput(name, is_stdout=True)
        pipes = self._lifeline, self.keep_alive, self._stdout, self.stderr
        try:
            self.process = launch(Pipes(*(pipe.fd for pipe in pipes)))
        except BaseException:
            self.cut()
            raise
        finally:
            for pipe in pipes:
                pipe.on_child_started()

    @property
    def pid(self) -> int:
        return self.process.pid

    def flush(self) -> None:
        """Wait until the remaining output is logged, at most `FLUSH_S` per pipe."""
        self._stdout.wait(FLUSH_S)
        self.stderr.wait(FLUSH_S)

    def end(self) -> None:
        """Kill the child, wait for its exit, and log its last output."""
        self.process.kill()
        self.process.wait()
        self.flush()
        self.cut()

    def cut(self) -> None:
        """Close the lifeline and the pipe for signs of life: the child exits, if it has not yet."""
        self._lifeline.cut()
        self.keep_alive.close()


class ChildExitWatcher:
    """One descriptor for all children: it becomes readable, and can wake a loop, when one exits.

    The parent still has to reap an exited child. On kernels without pidfds, no exit is ever
    reported, and the parent has to poll its children.
    """

    def __init__(self) -> None:
        self.has_exits = False
        """Whether a child has exited since the supervisor last reset this."""
        self._poll = select.epoll() if hasattr(os, "pidfd_open") else None
        self._files: set[int] = set()

    def fileno(self) -> int | None:
        """Return the descriptor to poll for reading; None: the system has no pidfds."""
        return None if self._poll is None else self._poll.fileno()

    def watch(self, pid: int) -> None:
        """Watch a child. Precondition: it has not been reaped yet."""
        if self._poll is None:
            return
        with suppress(OSError):  # an old kernel, or too many files: the parent polls this child
            file = os.pidfd_open(pid)
            self._files.add(file)
            self._poll.register(file, select.EPOLLIN)

    def watch_reports(self, file: int) -> None:
        """Watch a socket over which a fork server reports exits, until the socket is closed."""
        if self._poll is not None:
            self._poll.register(file, select.EPOLLIN)

    def take(self) -> None:
        """Set `has_exits` if children have exited, and stop watching these."""
        if self._poll is None:
            return
        for file, _ in self._poll.poll(0):
            self.has_exits = True
            if file in self._files:
                self._files.remove(file)
                self._poll.unregister(file)
                os.close(file)

    def close(self) -> None:
        """Stop watching all children. May be called again."""
        if self._poll is not None:
            self._poll.close()
        for file in self._files:
            os.close(file)
        self._files.clear()


def start_module(module: str, argument: str, pipes: Pipes, *others: int) -> subprocess.Popen[bytes]:
    """Start a process that runs a module of Driftline.

    It inherits the descriptors in `pipes` and `others`.
    """
    with block_termination_signals():
        return subprocess.Popen(
            child.command(module, argument),
            env=child.environment(),
            stdin=subprocess.DEVNULL,
            stdout=pipes.stdout,
            stderr=pipes.stderr,
            pass_fds=[pipes.lifeline, pipes.keep_alive, *others],
        )


@contextmanager
def block_termination_signals() -> Iterator[None]:
    """Block termination signals within this context: a child that starts in it inherits the mask,
    and unblocks the signals once it ignores them (`child`)."""
    old_mask = signal.pthread_sigmask(signal.SIG_BLOCK, TERMINATION_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, old_mask)
