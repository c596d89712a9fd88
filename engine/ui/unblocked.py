"""A file for what a command says: a write never waits for long, whoever reads or does not.

A terminal may be stopped (Ctrl-S), and a program may not read its pipe: a write would then stand
still, and with it whatever holds a lock or runs a loop. Here a write hands its text to a thread,
which alone waits, and goes on after a moment. Order stays: while the text is taken, a write ends
once it is written. What finds no room is lost as whole writes; from the first one on all are, until
the backlog is written. So there is one gap, and two log lines: that nobody reads, at once, and how
much is missing, when somebody does.
"""

from __future__ import annotations

import atexit
import errno
import io
import os
import sys
import threading
from collections import deque
from contextlib import suppress
from select import POLLOUT, poll
from time import sleep
from typing import TYPE_CHECKING, TextIO

from driftline.engine.events import about, log

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

HELD_BYTES = 1 << 16
"""Bytes that wait at most, unless a single write is larger."""

WAIT_S = 0.05
"""How long a write waits; after one that has waited in vain none does, until all is written."""

LAST_S = 2.0
"""How long the last words of a command wait."""

AGAIN_S = 1.0
"""Seconds between two tries after an error, such as of a full disk."""

GONE = (errno.EPIPE, errno.EIO, errno.EBADF)
"""Errors of a pipe or a terminal that nobody will ever read."""


def unblocked(stream: TextIO) -> TextIO:
    """A file that writes to the same descriptor; the stream itself if it has none."""
    if not isinstance(stream, io.TextIOWrapper):
        return stream
    try:
        return Unblocked(stream, stream.fileno())
    except (OSError, ValueError):  # a stream in memory, or a closed one
        return stream


def unblock_standard_error() -> None:
    """In a command: everything that this process says to standard error goes this way."""
    before = sys.stderr
    file = unblocked(before)
    if isinstance(file, Unblocked):
        sys.stderr = file

        def say_last_words() -> None:
            if file.wait(LAST_S):
                sys.stderr = before  # the interpreter ends, and threads with it

        atexit.register(say_last_words)


def held_up(file: object) -> bool:
    """Whether a file is one of ours, and its reader is behind."""
    return isinstance(file, Unblocked) and file.behind


class Unblocked(io.TextIOWrapper):
    """The file. Text is handed over at the end of a line, and by `flush`."""

    def __init__(self, stream: io.TextIOWrapper, file: int) -> None:
        self._backlog = _Backlog(file)
        super().__init__(self._backlog, stream.encoding, stream.errors, line_buffering=True)

    @property
    def behind(self) -> bool:
        """Whether text waits, as nobody reads."""
        return self._backlog.behind

    @property
    def waiting(self) -> int:
        """Bytes that wait."""
        return self._backlog.waiting

    def wait(self, within_s: float) -> bool:
        """Wait until all is written; returns whether it is. It does not wait for a full disk."""
        self.flush()
        return self._backlog.wait(within_s)


class _Backlog(io.BufferedIOBase):
    """Writes that wait, and the thread that carries them out."""

    name = "<stderr>"

    def __init__(self, file: int) -> None:
        self._file = file
        self._begin()

    def _begin(self) -> None:
        """Also in a copy of the process: it has no thread, and a lock that nobody gives back."""
        self._process = os.getpid()
        self._changed = threading.Condition()  # a signal handler may write within a write
        self._held: deque[bytes] = deque()
        """Writes that are accepted; the first one is under way."""
        self.waiting = 0
        self._lost = 0
        """Writes since the first one that found no room."""
        self._telling = False
        self._error = ""
        """Why the first write fails, and is tried again."""
        self._thread: threading.Thread | None = None
        self.behind = False

    def write(self, data: ReadableBuffer, /) -> int:
        text = bytes(data)
        with self._locked():
            if self._lost or (self._held and self.waiting + len(text) > HELD_BYTES):
                self._lose()
            elif text:
                self._accept(text)
        return len(text)

    def wait(self, within_s: float) -> bool:
        """Wait until all is written and told. Returns whether it is."""
        with self._locked():
            self._changed.wait_for(lambda: self._done or self._error, within_s)
            return self._done

    def _locked(self) -> threading.Condition:
        if self._process != os.getpid():
            self._begin()
        return self._changed

    @property
    def _done(self) -> bool:
        return not self._held and not self._telling

    def _accept(self, text: bytes) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._carry_out, daemon=True)
            self._thread.start()
        self._held.append(text)
        self.waiting += len(text)
        self._changed.notify_all()
        if not self.behind and threading.current_thread() is not self._thread:
            self.behind = not self._changed.wait_for(lambda: not self._held, WAIT_S)

    def _lose(self) -> None:
        self._lost += 1
        if self._lost == 1:  # by another thread: this one may hold locks of handlers and consoles
            with suppress(RuntimeError):  # there may be no more threads
                threading.Thread(target=_tell_loss, args=(self._error,), daemon=True).start()

    def _carry_out(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._held or self.closed)
                if not self._held:
                    return
                text = self._held[0]
            self._write_whole(text)
            with self._changed:
                self._held.popleft()
                self.waiting -= len(text)
                lost = 0
                if not self._held:
                    self.behind = False
                    lost, self._lost = self._lost, 0
                    self._telling = lost > 0
                self._changed.notify_all()
            if lost:
                _tell_over(lost)
                with self._changed:
                    self._telling = False
                    self._changed.notify_all()

    def _write_whole(self, text: bytes) -> None:
        """Write a text, however long it takes; nothing if there is no reader any more."""
        left = memoryview(text)
        while left:
            try:
                left = left[os.write(self._file, left) :]
                self._error = ""
            except BlockingIOError:  # another process has made the pipe or terminal so
                poller = poll()
                poller.register(self._file, POLLOUT)
                poller.poll(AGAIN_S * 1000)
            except OSError as error:
                if error.errno in GONE:
                    self._error = ""
                    return
                self._error = error.strerror or str(error)
                sleep(AGAIN_S)

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._file

    def isatty(self) -> bool:
        return os.isatty(self._file)

    def close(self) -> None:
        """End the thread once all is written; the descriptor stays open."""
        super().close()
        if not sys.is_finalizing():  # then a thread may stand still, and hold the lock
            with self._locked():
                self._changed.notify_all()


def _tell_loss(error: str) -> None:
    reason = error or "nobody reads it"
    told = about("standard-error", reason=reason)
    log.warning("standard error: %s; it will lack lines", reason, extra=told)


def _tell_over(lost: int) -> None:
    told = about("standard-error-over", count=lost)
    log.warning("standard error can be written again; it lacks %d lines", lost, extra=told)
