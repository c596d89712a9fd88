"""Messages between the processes of a service on one host, over Unix sockets.

`IpcServer` manages the connections of a process whose loop is a `Runtime`. `IpcClient` is one
connection of an asyncio loop to the process that listens at a path; it survives restarts of that
process.

A message wakes only its receiver. ZeroMQ, which connects nodes and producers, would also wake an
I/O thread at each end, and take four times as long.

Input: messages to send, and bytes of sockets. Output: messages, each with its connection.
Invariants: the messages of a connection arrive complete and in order, each at most once. Messages
that are sent without a connection, or shortly before it breaks, are lost: after a connect, each
process has to repeat what the other one may lack.
Sending never blocks: messages that exceed the kernel's buffer are queued here, and the sender has
to bound this queue.

On the wire, the length of a message precedes it, in 4 bytes.
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
from driftline.engine.wire.role import Role

BYTES_MAX = 1 << 30
"""Largest size of a message."""

_READ_BYTES = 1 << 16
"""Maximum number of bytes per read."""

_BACKLOG = 1024
"""Limit of connections that wait to be accepted."""

CONNECT_EVERY_S = 0.02
"""Interval in seconds of connect attempts while the other process does not listen."""

_length = Struct(">I")

Route = bytes
"""The id of a connection, never reused within the process."""


class FrameDecoder:
    """Decoder of the bytes received on one connection; returns complete messages."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._offset = 0
        """Offset of the next message in `_data`."""

    def add(self, data: bytes) -> None:
        """Append received bytes."""
        if self._offset:
            del self._data[: self._offset]
            self._offset = 0
        self._data += data

    def next(self) -> bytes | None:
        """Return the next complete message, or None. Raises MalformedMessage."""
        begin = self._offset + _length.size
        if len(self._data) < begin:
            return None
        (size,) = _length.unpack_from(self._data, self._offset)
        if size > BYTES_MAX:
            raise MalformedMessage(f"a message of {size} bytes")
        if len(self._data) < begin + size:
            return None
        self._offset = begin + size
        return bytes(self._data[begin : self._offset])


def framed(data: bytes) -> bytes:
    """Return a message with its length prefix."""
    return _length.pack(len(data)) + data


class IpcServer:
    """The connections of one process, with one file descriptor for the process's loop.

    `on_disconnect`: called with the route of each connection that ends, except by `close`.
    """

    def __init__(self, on_disconnect: Callable[[Route], None]) -> None:
        self._on_disconnect = on_disconnect
        self._selector = DefaultSelector()
        self._listener: socket.socket | None = None
        self._connections: dict[Route, _Connection] = {}
        self.unsent_bytes = 0
        """Bytes that are queued here because the kernel's buffers are full."""
        self._numbers = count()
        self._readable: deque[_Connection] = deque()
        """Connections whose received bytes may contain messages that `next` has not returned."""

    def fileno(self) -> int:
        """Return the file descriptor that is readable when a socket is ready."""
        return self._selector.fileno()

    def listen(self, path: str) -> None:
        """Listen at a path. Precondition: no other process listens there. Raises Unavailable."""
        Path(path).unlink(missing_ok=True)  # left by a killed process
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.setblocking(False)
        try:
            self._listener.bind(path)
        except OSError as error:
            raise Unavailable(f"cannot listen at {path}: {error.strerror}") from None
        self._listener.listen(_BACKLOG)
        self._selector.register(self._listener, EVENT_READ)

    def connect(self, path: str) -> Route | None:
        """Connect to the process that listens at a path; return None if that fails."""
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.setblocking(False)
        try:
            sock.connect(path)
        except OSError:
            sock.close()
            return None
        return self._add(sock).route

    def next(self) -> tuple[Route, bytes] | None:
        """Return the next received message, or None."""
        if not self._readable:
            self._read()
        while self._readable:
            connection = self._readable[0]
            try:
                data = connection.frames.next()
            except MalformedMessage:
                self._end(connection)
                data = None
            if data is not None:
                return connection.route, data
            self._readable.popleft()
        return None

    @property
    def has_more(self) -> bool:
        """Whether bytes already read may contain messages, which `fileno` does not signal."""
        return bool(self._readable)

    def send(self, route: Route, data: bytes) -> None:
        """Send a message, or drop it if the connection has ended."""
        connection = self._connections.get(route)
        if connection is not None:
            frame = framed(data)
            connection.unsent.append(memoryview(frame))
            self.unsent_bytes += len(frame)
            if not connection.awaits_writable:
                self._flush(connection)

    def close(self) -> None:
        """Close all connections; in a forked copy, the parent's connections stay open."""
        for connection in self._connections.values():
            connection.socket.close()
        self._connections.clear()
        if self._listener is not None:
            self._listener.close()
        self._selector.close()

    def _read(self) -> None:
        """Serve the ready sockets: accept, flush, and read at most `_READ_BYTES` from each."""
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
            sock, _ = self._listener.accept()
        except OSError:
            return
        sock.setblocking(False)
        self._add(sock)

    def _add(self, sock: socket.socket) -> _Connection:
        connection = _Connection(next(self._numbers).to_bytes(8), sock)
        self._connections[connection.route] = connection
        self._selector.register(sock, EVENT_READ, connection)
        return connection

    def _receive(self, connection: _Connection) -> None:
        try:
            data = connection.socket.recv(_READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            connection.frames.add(data)
            self._readable.append(connection)
        else:
            self._end(connection)

    def _flush(self, connection: _Connection) -> None:
        """Send as many queued bytes as the kernel has room for."""
        try:
            while connection.unsent:
                part = connection.unsent[0]
                sent = connection.socket.send(part)
                self.unsent_bytes -= sent
                if sent == len(part):
                    connection.unsent.popleft()
                else:
                    connection.unsent[0] = part[sent:]
        except BlockingIOError:
            pass
        except OSError:
            self._end(connection)
            return
        if connection.awaits_writable is not bool(connection.unsent):
            connection.awaits_writable = not connection.awaits_writable
            events = EVENT_READ | EVENT_WRITE if connection.awaits_writable else EVENT_READ
            self._selector.modify(connection.socket, events, connection)

    def _end(self, connection: _Connection) -> None:
        if self._connections.pop(connection.route, None) is not None:
            self._selector.unregister(connection.socket)
            connection.socket.close()
            self.unsent_bytes -= sum(map(len, connection.unsent))
            self._on_disconnect(connection.route)


class IpcRole(Role, ABC):
    """A role with an `IpcServer`. `on_disconnect`: see `IpcServer`."""

    def __init__(self, name: str, on_disconnect: Callable[[Route], None]) -> None:
        super().__init__(name)
        self.ipc = IpcServer(on_disconnect)

    @abstractmethod
    def handle_input(self) -> None:
        """Handle a bounded number of received messages."""

    @abstractmethod
    def work(self) -> bool:
        """Do the work of a turn, and send messages. Return whether more work is due at once."""

    def turn(self) -> bool:
        if self.ipc.has_more:
            self.handle_input()
        return self.work() or self.ipc.has_more


class IpcClient(asyncio.Protocol):
    """A connection for an asyncio loop; it reconnects after it breaks.

    `on_message`: called with each message; `on_connect`: called after each connect. Precondition:
    the server sends nothing on a connection before the client's first message.
    """

    def __init__(
        self, path: str, on_message: Callable[[bytes], None], on_connect: Callable[[], None]
    ) -> None:
        self._path = path
        self._on_message = on_message
        self._on_connect = on_connect
        self._frames = FrameDecoder()
        self._transport: asyncio.Transport | None = None
        self._is_lost = asyncio.Event()
        """Set when the connection has ended."""
        self._connect_task = asyncio.create_task(self._keep_connected())

    def send(self, data: bytes) -> None:
        """Send a message, or drop it if there is no connection."""
        if self._transport is not None:
            with suppress(RuntimeError):  # closed, but uvloop has not called `connection_lost` yet
                self._transport.write(framed(data))

    def close(self) -> None:
        """Close the connection for good."""
        self._connect_task.cancel()
        if self._transport is not None:
            self._transport.abort()
            self._transport = None

    async def _keep_connected(self) -> None:
        """Connect, and reconnect whenever the connection ends."""
        loop = asyncio.get_running_loop()
        while True:
            self._is_lost.clear()
            try:
                transport, _ = await loop.create_unix_connection(lambda: self, self._path)
            except OSError:
                await asyncio.sleep(CONNECT_EVERY_S)
                continue
            self._transport, self._frames = transport, FrameDecoder()
            self._on_connect()
            await self._is_lost.wait()
            self._transport = None

    def data_received(self, data: bytes) -> None:
        """Pass complete messages to `on_message`; disconnect if one is malformed."""
        self._frames.add(data)
        try:
            while self._transport is not None and (message := self._frames.next()) is not None:
                self._on_message(message)
        except MalformedMessage:
            if self._transport is not None:
                self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Let `_keep_connected` reconnect."""
        self._is_lost.set()


class _Connection:
    """This process's end of a connection."""

    def __init__(self, route: Route, sock: socket.socket) -> None:
        self.route = route
        self.socket = sock
        self.frames = FrameDecoder()
        self.unsent: deque[memoryview] = deque()
        """Frames, the first one perhaps in part, for which the kernel's buffer has no room."""
        self.awaits_writable = False
        """Whether the selector also waits until the socket is writable."""
