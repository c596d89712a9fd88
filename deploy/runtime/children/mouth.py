"""What a child says, to standard error or standard output: a pipe, and a thread that reads it.

The thread reads whatever comes, at once, so the child never waits for long. Log lines (`logs`) come
to standard error, and are told as they are. Other text is told as lines of that process with the
event ``print``: as warnings what comes to standard error, such as a traceback, and as information
what user code prints to standard output. Of each, at most `SHOWN_MAX` lines are told in a second,
and how many lines were left out. The last ones are among them, as a traceback ends with its cause.
Memory is bounded, and no file is written, so a full disk silences nobody.
"""

from __future__ import annotations

import fcntl
import logging
import os
import threading
from collections import deque
from contextlib import suppress
from select import POLLIN, poll
from time import monotonic

from driftline.deploy.runtime.logs import BEGIN, from_child, tell_again
from driftline.engine.events import FIELDS, log

SHOWN_MAX = 20
"""Lines of text of one process that are told in a second at most; as many are remembered."""

SHOWN_FIRST = 5
"""How many of these lines are told at once; the others are the last ones of the second."""

LOGGED_MAX = 1000
"""Log lines of one process that are told in a second at most."""

WINDOW_S = 1.0
"""The second."""

LINE_BYTES = 1 << 18
"""A longer line is cut into several."""

SHOWN_BYTES = 2000
"""Bytes of a line of text that are shown."""

READ_BYTES = 1 << 16

PIPE_BYTES = 1 << 20
"""What a process may say while this one has no time to read it, where the kernel allows it."""


class Mouth:
    """What one process says. `fd`: for its standard error or output, until `started`."""

    def __init__(self, process: str, *, printed: bool = False) -> None:
        """`printed`: its standard output, where nothing is a log line."""
        self.last: deque[str] = deque(maxlen=SHOWN_MAX)
        """The last lines, for the error that ends the run."""
        self.process = process
        """Its name; a spare gets another one."""
        self._printed = printed
        self._from, self.fd = os.pipe()
        if hasattr(fcntl, "F_SETPIPE_SZ"):
            with suppress(OSError):
                fcntl.fcntl(self.fd, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._begun = b""
        """The line that has no end yet."""
        self._until = 0.0
        """The end of the current second."""
        self._told = self._logged = self._log_lines_left_out = 0
        self._held: deque[bytes] = deque(maxlen=SHOWN_MAX - SHOWN_FIRST)
        """Lines that are told at the end of the second."""
        self._left_out = 0

    def started(self) -> None:
        """The process has inherited `fd`: close it here, and begin to listen."""
        os.close(self.fd)
        self._thread.start()

    def wait(self, timeout_s: float) -> None:
        """Wait until the process has said everything. A process that it started may go on."""
        self._thread.join(timeout_s)

    def _read(self) -> None:
        poller = poll()
        poller.register(self._from, POLLIN)
        while True:
            held = self._held or self._log_lines_left_out
            wait_s = max(0.0, self._until - monotonic()) if held else None
            if poller.poll(None if wait_s is None else wait_s * 1000):
                data = os.read(self._from, READ_BYTES)
                if not data:
                    break
                self._take(data)
            if monotonic() >= self._until:
                self._end_second()
        if self._begun:
            self._take(b"\n")
        self._end_second()
        with suppress(OSError):
            os.close(self._from)

    def _take(self, data: bytes) -> None:
        whole, end, self._begun = (self._begun + data).rpartition(b"\n")
        if len(self._begun) > LINE_BYTES:
            whole, end, self._begun = whole + end + self._begun, b"\n", b""
        if not end:
            return
        text, *lines = [whole] if self._printed else whole.split(BEGIN)
        self._take_text(text)
        for line in lines:
            said, _, text = line.partition(b"\n")
            self._take_log_line(said)
            self._take_text(text)

    def _take_log_line(self, line: bytes) -> None:
        record = from_child(line, self.process)
        if record is None:
            self._take_text(line)
            return
        if record.levelno >= logging.WARNING:
            self.last += record.getMessage().splitlines()
        self._logged += 1
        if self._logged <= LOGGED_MAX:
            tell_again(record)
        else:
            self._log_lines_left_out += 1

    def _take_text(self, text: bytes) -> None:
        """Take whole lines of text; few of them are looked at if there are many."""
        text = text.strip(b"\n")
        if not text:
            return
        while self._told < SHOWN_FIRST and text:
            line, _, text = text.partition(b"\n")
            self._told += 1
            self._tell(line)
        if text:
            rest, *last = text.rsplit(b"\n", SHOWN_MAX)
            new = rest.count(b"\n") + 1 + len(last)
            kept = self._held.maxlen or 0
            self._left_out += max(0, len(self._held) + new - kept)
            self._held += [rest[-LINE_BYTES:].rpartition(b"\n")[2], *last]

    def _end_second(self) -> None:
        if self._left_out:
            self._say(f"... ({self._left_out} lines left out)", left_out=self._left_out)
        if self._log_lines_left_out:
            self._say(f"... ({self._log_lines_left_out} log lines left out)")
        for line in self._held:
            self._tell(line)
        self._held.clear()
        self._left_out = self._told = self._logged = self._log_lines_left_out = 0
        self._until = monotonic() + WINDOW_S

    def _tell(self, line: bytes) -> None:
        if line.strip():
            said = line[:SHOWN_BYTES].decode(errors="replace")
            self.last.append(said)
            self._say(said)

    def _say(self, text: str, **fields: int) -> None:
        level = logging.INFO if self._printed else logging.WARNING
        record = log.makeRecord(
            log.name, level, __file__, 0, text, (), None,
            extra={FIELDS: {"event": "print", **fields}},
        )  # fmt: skip
        record.processName = self.process
        tell_again(record)
