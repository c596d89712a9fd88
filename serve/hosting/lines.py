"""Lines: messages between the processes of a service, which are on one host, over Unix sockets.

A message wakes its receiver, and nobody else: over ZeroMQ, by which nodes and producers are
reached, it would wake a thread of its own at each end, too, and be under way four times as long.

Takes: messages to send, and what comes over sockets. Gives: messages, each with its line.
Invariants: the messages of a line come whole and in order, each at most once. What is said while
there is no line, or as it breaks, is lost: so whoever says it begins anew with each line. Sending
never waits: what the kernel has no room for stays here, so it is bounded by who sends.

A message is preceded by its length, in 4 bytes.
"""

from __future__ import annotations

import socket
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from errno import EMFILE, ENFILE
from itertools import count
from pathlib import Path
from selectors import EVENT_READ, EVENT_WRITE, DefaultSelector
from struct import Struct

from driftline.engine.errors import MalformedMessage, Unavailable
from driftline.engine.wire.party import Party

BYTES_MAX = 1 << 30
"""Of a message."""

_READ = 1 << 16
"""Bytes that are read at once: what is larger comes in several."""

_BACKLOG = 1024
"""Connections that wait to be accepted at most."""

_head = Struct(">I")

Route = bytes
"""Which line: a name that no other one of the process has, or has had."""


class Frames:
    """What has come over one line, as messages."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._at = 0
        """Where the next message begins."""

    def add(self, data: bytes) -> None:
        """The next bytes."""
        if self._at:
            del self._data[: self._at]
            self._at = 0
        self._data += data

    def next(self) -> bytes | None:
        """The next message that has come whole; None: there is none. Raises MalformedMessage."""
        begin = self._at + _head.size
        if len(self._data) < begin:
            return None
        (size,) = _head.unpack_from(self._data, self._at)
        if size > BYTES_MAX:
            raise MalformedMessage(f"a message of {size} bytes")
        if len(self._data) < begin + size:
            return None
        self._at = begin + size
        return bytes(self._data[begin : self._at])


def framed(data: bytes) -> bytes:
    """A message as it goes over a line."""
    return _head.pack(len(data)) + data


class Lines:
    """The lines of one process: a loop waits for all of them at one file.

    `lost`: is told of each line that has ended, unless it was ended here.
    """

    def __init__(self, lost: Callable[[Route], None]) -> None:
        self._lost = lost
        self._selector = DefaultSelector()
        self._listener: socket.socket | None = None
        self._is_full = False
        """Whether there was no file left for who has called: so the listener is not looked at."""
        self._lines: dict[Route, _Line] = {}
        self.unsent = 0
        """Bytes that wait for room in the kernel."""
        self._numbers = count()
        self._came: deque[_Line] = deque()
        """Lines that may have messages which nobody has taken yet."""

    def fileno(self) -> int:
        """The file that can be read when something has come."""
        return self._selector.fileno()

    def listen(self, path: str) -> None:
        """Let others call at a path, where nobody else listens. Raises Unavailable."""
        Path(path).unlink(missing_ok=True)  # of a process that was killed
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.setblocking(False)
        try:
            self._listener.bind(path)
        except OSError as error:
            raise Unavailable(f"cannot listen at {path}: {error.strerror}") from None
        self._listener.listen(_BACKLOG)
        self._selector.register(self._listener, EVENT_READ)

    def call(self, path: str) -> Route | None:
        """A line to the process that listens at a path; None: there is none now."""
        found = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        found.setblocking(False)
        try:
            found.connect(path)
        except OSError:
            found.close()
            return None
        return self._add(found).route

    def next(self) -> tuple[Route, bytes] | None:
        """The next message; None: nothing has come that is not taken yet."""
        if not self._came:
            self._read()
        while self._came:
            line = self._came[0]
            try:
                data = line.frames.next()
            except MalformedMessage:
                self._end(line)
                data = None
            if data is not None:
                return line.route, data
            self._came.popleft()
        return None

    @property
    def has_more(self) -> bool:
        """Whether something was read that nobody has taken yet: no file tells of it any more."""
        return bool(self._came)

    def send(self, route: Route, data: bytes) -> None:
        """Send a message; it is lost if there is no such line any more."""
        line = self._lines.get(route)
        if line is not None:
            frame = framed(data)
            line.unsent.append(memoryview(frame))
            self.unsent += len(frame)
            if not line.waits:
                self._flush(line)

    def close(self) -> None:
        """End all lines. In a copy of the process: leave them to the process itself."""
        for line in self._lines.values():
            line.socket.close()
        self._lines.clear()
        if self._listener is not None:
            self._listener.close()
        self._selector.close()

    def _read(self) -> None:
        """Take what has come to the sockets, a bounded part of it."""
        for key, events in self._selector.select(0):
            line = key.data
            if line is None:
                self._accept()
                continue
            if events & EVENT_WRITE:
                self._flush(line)
            if events & EVENT_READ and line.route in self._lines:
                self._receive(line)

    def _accept(self) -> None:
        assert self._listener is not None
        try:
            found, _ = self._listener.accept()
        except OSError as error:
            if error.errno in (EMFILE, ENFILE):  # nobody is let in before a line has ended
                self._selector.unregister(self._listener)
                self._is_full = True
            return
        found.setblocking(False)
        self._add(found)

    def _add(self, found: socket.socket) -> _Line:
        line = _Line(next(self._numbers).to_bytes(8), found)
        self._lines[line.route] = line
        self._selector.register(found, EVENT_READ, line)
        return line

    def _receive(self, line: _Line) -> None:
        try:
            data = line.socket.recv(_READ)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            line.frames.add(data)
            self._came.append(line)
        else:
            self._end(line)

    def _flush(self, line: _Line) -> None:
        """Send what the kernel has room for."""
        try:
            while line.unsent:
                part = line.unsent[0]
                sent = line.socket.send(part)
                self.unsent -= sent
                if sent == len(part):
                    line.unsent.popleft()
                else:
                    line.unsent[0] = part[sent:]
        except BlockingIOError:
            pass
        except OSError:
            self._end(line)
            return
        if line.waits is not bool(line.unsent):
            line.waits = not line.waits
            events = EVENT_READ | EVENT_WRITE if line.waits else EVENT_READ
            self._selector.modify(line.socket, events, line)

    def _end(self, line: _Line) -> None:
        if self._lines.pop(line.route, None) is not None:
            self._selector.unregister(line.socket)
            line.socket.close()
            self.unsent -= sum(map(len, line.unsent))
            if self._is_full and self._listener is not None:
                self._is_full = False
                self._selector.register(self._listener, EVENT_READ)
            self._lost(line.route)


class LinesParty(Party, ABC):
    """A party that talks over lines. `lost`: see `Lines`."""

    def __init__(self, name: str, lost: Callable[[Route], None]) -> None:
        super().__init__(name)
        self.lines = Lines(lost)

    @abstractmethod
    def drain(self) -> None:
        """Take messages that have come, a bounded number of them."""

    @abstractmethod
    def work(self) -> bool:
        """Work on what has come, and send. Returns whether there is more to do."""

    def turn(self) -> bool:
        if self.lines.has_more:
            self.drain()
        return self.work() or self.lines.has_more


class _Line:
    """One end of a line."""

    def __init__(self, route: Route, found: socket.socket) -> None:
        self.route = route
        self.socket = found
        self.frames = Frames()
        self.unsent: deque[memoryview] = deque()
        self.waits = False
        """Whether the kernel is to tell when it has room for what is unsent."""
