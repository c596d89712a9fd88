"""The HTTP of a connection, with a bound on the head of a request: its line and its headers.

The parser keeps what has come of a head until it is whole, however long that is. An answer leaves
in one piece, if its head and its body are written at once.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from time import monotonic

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from driftline.engine.events import Trouble

HEAD_BYTES_MAX = 1 << 16
"""A head that is not whole after so many bytes is refused; what comes at once may be more."""

UNSENT_BYTES = 1 << 17
"""So much the kernel keeps of what a client has not read: with more, it would tell of none of it
being read for minutes, though slowly it is."""

CONNECTION = "driftline.connection"
"""In the `state` of a request's scope: its `Connection`."""

PIPELINED_MAX = 16
"""So many requests may wait for their turn on a connection; behind them it is not read."""

LINGER_S = 1.0
"""How long a refused connection is read from, for nothing."""


def _refusal(status: bytes, code: bytes, message: bytes) -> bytes:
    text = b'{"error":{"code":"%s","message":"%s"}}' % (code, message)
    head = b"content-type: application/json\r\nconnection: close\r\ncontent-length:"
    return b"HTTP/1.1 %s\r\n%s %d\r\n\r\n%s" % (status, head, len(text), text)


_TOO_LARGE = _refusal(
    b"431 Request Header Fields Too Large",
    b"large",
    b"the line and the headers of a request have more than %d bytes" % HEAD_BYTES_MAX,
)
_NO_HTTP = _refusal(b"400 Bad Request", b"invalid", b"this is no request of HTTP/1.1")

_TLS = b"\x16\x03"
"""So TLS begins."""

_errors = logging.getLogger("uvicorn.error.http")
_errors.setLevel(logging.ERROR)
"""Of uvicorn: a warning for each thing that strangers send would fill the log."""

_no_http = Trouble("no-http")


class Connection:
    """The connection of a request; `abort`: ends it at once."""

    def __init__(self, abort: Callable[[], None]) -> None:
        self.abort = abort
        self.is_lost = False
        """Whether the client has left."""
        self._tasks: set[asyncio.Task[object]] = set()

    def hold(self, task: asyncio.Task[object]) -> bool:
        """Have a task cancelled when the client leaves, until `release`. Returns whether it is
        still there; if not, nothing is held."""
        if not self.is_lost:
            self._tasks.add(task)
        return not self.is_lost

    def release(self, task: asyncio.Task[object]) -> None:
        """Let a task go on without the client."""
        self._tasks.discard(task)

    def lose(self) -> None:
        """The client has left."""
        self.is_lost = True
        for task in self._tasks:
            task.cancel()


class InOne(asyncio.Transport):
    """Sends what is written in one turn of the loop at once: its reader wakes up once."""

    def __init__(self, transport: asyncio.Transport) -> None:
        super().__init__()
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self._written: list[bytes | bytearray | memoryview] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self._written:
            self._loop.call_soon(self._send)
        self._written.append(data)

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def can_write_eof(self) -> bool:
        return self._transport.can_write_eof()

    def write_eof(self) -> None:
        self._send()
        self._transport.write_eof()

    def close(self) -> None:
        self._send()
        self._transport.close()

    def abort(self) -> None:
        self._written.clear()
        self._transport.abort()

    def _send(self) -> None:
        written, self._written = self._written, []
        if written and not self._transport.is_closing():
            self._transport.write(b"".join(written) if len(written) > 1 else written[0])


class BoundedHttp(HttpToolsProtocol):
    """A connection; invariant: no more than a bound, and one read, of a head is kept."""

    _head = 0
    """Bytes of the head that has begun."""
    _is_in_head = True
    _is_refused = False
    _speaks_tls = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.logger = _errors
        super().connection_made(transport)
        if (connected := transport.get_extra_info("socket")) is not None:
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, UNSENT_BYTES)
        self.transport = InOne(transport)
        self._connection = Connection(self.transport.abort)
        self._answered: list[RequestResponseCycle] = []
        """The requests that are being answered, or will be; they may all have come at once."""

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        for cycle in self._answered:  # the base class tells the last one only
            cycle.disconnected = True
            cycle.message_event.set()
        self._connection.lose()

    def data_received(self, data: bytes) -> None:
        if self._is_refused:
            return
        if self._is_in_head:
            self._speaks_tls = not self._head and data.startswith(_TLS)
            self._head += len(data)
        super().data_received(data)
        if self._is_in_head and self._head > HEAD_BYTES_MAX and not self.transport.is_closing():
            self._refuse()

    def _refuse(self) -> None:
        """Say so, and read on for a moment: else what is unread would take the answer with it."""
        self._is_refused = True
        self.transport.write(_TOO_LARGE)
        if self.transport.can_write_eof():
            self.transport.write_eof()
        asyncio.get_running_loop().call_later(LINGER_S, self.transport.close)

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP."""
        where = self.client[0] if self.client else "a client"
        why = ": it is TLS, which is not spoken here" if self._speaks_tls else ""
        _no_http.failed(monotonic(), f"{where} has sent what is no HTTP{why}")
        self.transport.write(_NO_HTTP)
        self.transport.close()

    def on_message_begin(self) -> None:
        self._head, self._is_in_head = 0, True
        super().on_message_begin()
        self.scope["state"][CONNECTION] = self._connection

    def on_headers_complete(self) -> None:
        self._is_in_head = False
        super().on_headers_complete()
        self._answered = [each for each in self._answered if not each.response_complete]
        self._answered.append(self.cycle)
        if 0 < len(self.pipeline) <= PIPELINED_MAX:
            self.flow.resume_reading()  # or nobody would see the client leave

    def on_body(self, body: bytes) -> None:
        if self.scope["method"] not in ("GET", "HEAD"):  # theirs nobody reads, which would stop
            super().on_body(body)  # the reading, and nobody would see the client leave
