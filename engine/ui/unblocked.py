"""Standard error of a command through a thread: no write waits long for a reader.

A terminal may be stopped (Ctrl-S), and a program may not read its pipe. A thread, which alone waits
for them, writes what others hand over. While somebody reads, a write returns once its text is
written, so the order with standard output stays. If `HELD_BYTES` wait, further writes are lost
until all is written; two log lines say so.
"""

from __future__ import annotations

import atexit
import io
import os
import sys
import threading
from collections import deque
from select import select
from typing import IO, TYPE_CHECKING

from driftline.engine.events import about, log

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

HELD_BYTES = 1 << 16
"""Bytes that wait at most, unless a single write is larger."""

WAIT_S = 0.05
"""How long a write waits; after one that has waited in vain none does, until all is written."""

LAST_S = 2.0
"""How long the end of a command waits for the reader."""


def unblock_standard_error() -> None:
    """In a command: let everything that this process writes to standard error go this way."""
    before = sys.stderr
    try:
        backlog = Backlog(before.fileno())
    except (OSError, ValueError):  # a stream in memory, or a closed one
        return

    def restore() -> None:
        sys.stderr = before

    def end() -> None:
        sys.stderr.flush()
        if backlog.wait(LAST_S):
            restore()  # the interpreter ends, and threads with it

    sys.stderr = io.TextIOWrapper(backlog, before.encoding, before.errors, line_buffering=True)
    atexit.register(end)
    os.register_at_fork(after_in_child=restore)  # a copy of the process has no thread


def held_up(file: IO[str]) -> bool:
    """Return whether a file goes this way, and its reader is behind."""
    backlog = getattr(file, "buffer", None)
    return isinstance(backlog, Backlog) and backlog.behind


class Backlog(io.BufferedIOBase):
    """Writes to a file descriptor that wait, and the thread that carries them out."""

    def __init__(self, file: int) -> None:
        self._file = file
        self._changed = threading.Condition()  # reentrant: a signal handler may write in a write
        self._held: deque[bytes] = deque()
        """Writes that are accepted; the first one is under way."""
        self._held_bytes = 0
        self._lost = 0
        """Writes that found no room since the last one that did."""
        self.behind = False
        """Whether a write has waited in vain since all was written."""
        self._thread = threading.Thread(target=self._carry_out, daemon=True)
        self._thread.start()

    def write(self, data: ReadableBuffer, /) -> int:
        text = bytes(data)
        with self._changed:
            if self._lost or (self._held and self._held_bytes + len(text) > HELD_BYTES):
                self._lost += 1
                if self._lost == 1:  # by another thread: this one may hold locks of handlers
                    threading.Thread(target=_log_loss, daemon=True).start()
                return len(text)
            self._held.append(text)
            self._held_bytes += len(text)
            self._changed.notify_all()
            if threading.current_thread() is not self._thread:
                self.behind = self.behind or not self.wait(WAIT_S)
        return len(text)

    def wait(self, within_s: float) -> bool:
        """Wait until all is written. Return whether it is."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._held, within_s)

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._file

    def isatty(self) -> bool:
        return os.isatty(self._file)

    def _carry_out(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._held)
                text = self._held[0]
            self._write_whole(text)
            with self._changed:
                lost = self._lost if len(self._held) == 1 else 0
                self._lost -= lost
            if lost:
                _log_over(lost)
            with self._changed:
                self._held.popleft()
                self._held_bytes -= len(text)
                self.behind = self.behind and bool(self._held)
                self._changed.notify_all()

    def _write_whole(self, text: bytes) -> None:
        """Write a text, however long it takes. It is lost if there is no reader, or no room."""
        while text:
            try:
                text = text[os.write(self._file, text) :]
            except BlockingIOError:  # another process has made the pipe or terminal so
                select([], [self._file], [])
            except OSError:
                return


def _log_loss() -> None:
    reason = "nobody reads it"
    told = about("standard-error", reason=reason)
    log.warning("standard error: %s; it will lack lines", reason, extra=told)


def _log_over(lost: int) -> None:
    told = about("standard-error-over", count=lost)
    log.warning("standard error can be written again; it lacks %d lines", lost, extra=told)
