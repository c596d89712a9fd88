"""Messages between the processes of a service, which are on one host, over Unix sockets.

`IpcServer` has the connections of a process with a loop of its own, `IpcClient` one connection of
an asyncio loop, to the process that listens at a path, whatever process that is.

A message wakes its receiver, and nobody else: over ZeroMQ, by which nodes and producers are
reached, it would wake a thread of its own at each end, too, and be under way four times as long.

Takes: messages to send, and what comes over sockets. Gives: messages, each with its connection.
Invariants: the messages of a connection come whole and in order, each at most once. What is sent
while there is none, or as it breaks, is lost: so its sender begins anew with each connection.
Sending never waits: what the kernel has no room for stays here, so it is bounded by who sends.

A message is preceded by its length, in 4 bytes.
"""

from __future__ import annotations

import asyncio
import socket
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path
from selectors import EVENT_READ, EVENT_WRITE, DefaultSelector
from struct import Struct

from driftline.engine.errors import MalformedMessage, Unavailable
from driftline.engine.wire.party import Role

BYTES_MAX = 1 << 30
"""Of a message."""

_READ = 1 << 16
"""Bytes that are read at once: what is larger comes in several."""

_BACKLOG = 1024
"""Connections that wait to be accepted at most."""

CALL_EVERY_S = 0.02
"""How often it is tried to connect to a process that does not listen yet, or not any more."""

_head = Struct(">I")

Route = bytes
"""Which connection: a name that no other one of the process has, or has had."""


class Frames:
    """What has come over one connection, as messages."""

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
    """A message as it goes over a connection."""
    return _head.pack(len(data)) + data


class IpcServer:
    """The connections of one process: a loop waits for all of them at one file.

    `lost`: is called with each connection that has ended, unless it was ended here.
    """

    def __init__(self, lost: Callable[[Route], None]) -> None:
        self._lost = lost
        self._selector = DefaultSelector()
        self._listener: socket.socket | None = None
        self._connections: dict[Route, _Connection] = {}
        self.unsent = 0
        """Bytes that wait for room in the kernel."""
        self._numbers = count()
        self._came: deque[_Connection] = deque()
        """Connections that may have messages which nobody has taken yet."""

    def fileno(self) -> int:
        """The file that can be read when something has come."""
        return self._selector.fileno()

    def listen(self, path: str) -> None:
        """Let others connect at a path, where nobody else listens. Raises Unavailable."""
        Path(path).unlink(missing_ok=True)  # of a process that was killed
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.setblocking(False)
        try:
            self._listener.bind(path)
        except OSError as error:
            raise Unavailable(f"cannot listen at {path}: {error.strerror}") from None
        self._listener.listen(_BACKLOG)
        self._selector.register(self._listener, EVENT_READ)

    def connect(self, path: str) -> Route | None:
        """Connect to the process that listens at a path; None: there is none now."""
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
            connection = self._came[0]
            try:
                data = connection.frames.next()
            except MalformedMessage:
                self._end(connection)
                data = None
            if data is not None:
                return connection.route, data
            self._came.popleft()
        return None

    @property
    def has_more(self) -> bool:
        """Whether something was read that nobody has taken yet: no file tells of it any more."""
        return bool(self._came)

    def send(self, route: Route, data: bytes) -> None:
        """Send a message; it is lost if there is no such connection any more."""
        connection = self._connections.get(route)
        if connection is not None:
            frame = framed(data)
            connection.unsent.append(memoryview(frame))
            self.unsent += len(frame)
            if not connection.waits:
                self._flush(connection)

    def close(self) -> None:
        """End all connections. In a copy of the process: leave them to the process itself."""
        for connection in self._connections.values():
            connection.socket.close()
        self._connections.clear()
        if self._listener is not None:
            self._listener.close()
        self._selector.close()

    def _read(self) -> None:
        """Take what has come to the sockets, a bounded part of it."""
        for key, events in self._selector.select(0):
            connection = key.data
            if connection is None:
                self._accept()
                continue
            if events & EVENT_WRITE:
                self._flush(connection)
            if events & EVENT_READ and connection.route in self._connections:
                self._receive(connection)

    def _accept(self) -> None:
        assert self._listener is not None
        try:
            found, _ = self._listener.accept()
        except OSError:
            return
        found.setblocking(False)
        self._add(found)

    def _add(self, found: socket.socket) -> _Connection:
        connection = _Connection(next(self._numbers).to_bytes(8), found)
        self._connections[connection.route] = connection
        self._selector.register(found, EVENT_READ, connection)
        return connection

    def _receive(self, connection: _Connection) -> None:
        try:
            data = connection.socket.recv(_READ)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            connection.frames.add(data)
            self._came.append(connection)
        else:
            self._end(connection)

    def _flush(self, connection: _Connection) -> None:
        """Send what the kernel has room for."""
        try:
            while connection.unsent:
                part = connection.unsent[0]
                sent = connection.socket.send(part)
                self.unsent -= sent
                if sent == len(part):
                    connection.unsent.popleft()
                else:
                    connection.unsent[0] = part[sent:]
        except BlockingIOError:
            pass
        except OSError:
            self._end(connection)
            return
        if connection.waits is not bool(connection.unsent):
            connection.waits = not connection.waits
            events = EVENT_READ | EVENT_WRITE if connection.waits else EVENT_READ
            self._selector.modify(connection.socket, events, connection)

    def _end(self, connection: _Connection) -> None:
        if self._connections.pop(connection.route, None) is not None:
            self._selector.unregister(connection.socket)
            connection.socket.close()
            self.unsent -= sum(map(len, connection.unsent))
            self._lost(connection.route)


class IpcParty(Role, ABC):
    """A party that talks over connections. `lost`: see `IpcServer`."""

    def __init__(self, name: str, lost: Callable[[Route], None]) -> None:
        super().__init__(name)
        self.ipc = IpcServer(lost)

    @abstractmethod
    def drain(self) -> None:
        """Take messages that have come, a bounded number of them."""

    @abstractmethod
    def work(self) -> bool:
        """Work on what has come, and send. Returns whether there is more to do."""

    def turn(self) -> bool:
        if self.ipc.has_more:
            self.drain()
        return self.work() or self.ipc.has_more


class IpcClient(asyncio.Protocol):
    """A connection that is made, used and closed in one loop; there is a new one soon after one has
    ended.

    `take`: gets each message; `there`: is called whenever there is a new connection, on which
    nothing was sent. Precondition: who listens sends nothing before it is sent something.
    """

    def __init__(self, path: str, take: Callable[[bytes], None], there: Callable[[], None]) -> None:
        self._path = path
        self._take = take
        self._there = there
        self._frames = Frames()
        self._transport: asyncio.Transport | None = None
        self._ended = asyncio.Event()
        self._keeping = asyncio.create_task(self._keep())

    def send(self, data: bytes) -> None:
        """Send a message; it is lost if there is no connection."""
        if self._transport is not None:
            with suppress(RuntimeError):  # it has ended, which uvloop tells a moment later
                self._transport.write(framed(data))

    def close(self) -> None:
        """Send and take nothing more."""
        self._keeping.cancel()
        if self._transport is not None:
            self._transport.abort()
            self._transport = None

    async def _keep(self) -> None:
        """Connect, again and again."""
        loop = asyncio.get_running_loop()
        while True:
            self._ended.clear()
            try:
                transport, _ = await loop.create_unix_connection(lambda: self, self._path)
            except OSError:
                await asyncio.sleep(CALL_EVERY_S)
                continue
            self._transport, self._frames = transport, Frames()
            self._there()
            await self._ended.wait()
            self._transport = None

    def data_received(self, data: bytes) -> None:
        """Something has come."""
        self._frames.add(data)
        try:
            while self._transport is not None and (message := self._frames.next()) is not None:
                self._take(message)
        except MalformedMessage:
            if self._transport is not None:
                self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection has ended."""
        self._ended.set()


class _Connection:
    """One end of a connection."""

    def __init__(self, route: Route, found: socket.socket) -> None:
        self.route = route
        self.socket = found
        self.frames = Frames()
        self.unsent: deque[memoryview] = deque()
        self.waits = False
        """Whether the kernel is to tell when it has room for what is unsent."""
