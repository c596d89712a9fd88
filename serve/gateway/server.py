"""The HTTP server of a service: uvicorn with the backend, in the event loop of the caller.

Limits protect the server against slow, idle and too many clients. A connection must send the head
of its next request (request line and headers) in time, and each client address may open a limited
number of connections. While `CONNECTIONS_MAX` connections are open, the server rejects requests.
`serve.http.content` limits bodies. A response may take any time while its client reads; a client
that stops reading is disconnected after `WRITE_TIMEOUT_S`.
"""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from time import monotonic
from typing import Any

import uvicorn
from msgspec import Struct
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from driftline.engine.errors import Unavailable
from driftline.engine.events import RateLimitedLog, event_fields, log
from driftline.serve.gateway.service import ServiceBackend

BACKLOG = 1024
"""Limit of connections that wait to be accepted."""

GRACE_S = 5
"""Time in seconds for running requests to finish at shutdown."""

CONNECTIONS_MAX = 4096
"""While this many connections are open, the server answers all requests with 503."""

CONNECTIONS_PER_ADDRESS = 1024
"""Maximum number of connections per client address; enough for a proxy with many clients."""

HEAD_TIMEOUT_S = 20.0
"""Timeout in seconds for the head of a request. It starts when the connection opens, or at the
first byte after a response."""

KEEP_ALIVE_S = 60
"""Seconds after a response until an idle connection is closed."""

WRITE_TIMEOUT_S = 60.0
"""Timeout in seconds of a client that does not read its response."""


class ListenAddress(Struct, frozen=True):
    """The address to listen on. `certificate`, `key`: paths of the PEM files; "" without TLS."""

    host: str = "127.0.0.1"
    port: int = 8080
    certificate: str = ""
    key: str = ""

    @property
    def url(self) -> str:
        """The URL for browsers."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http{'s' * bool(self.certificate)}://{host}:{self.port}"


def open_listener(address: ListenAddress) -> tuple[socket.socket, ListenAddress]:
    """Return a listening socket and its address; if the port is 0, the kernel chooses one.

    Raises Unavailable, also for an unusable certificate.
    """
    _check_certificate(address)
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    # asyncio sets TCP_NODELAY only on sockets created with IPPROTO_TCP.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        set_write_timeout(listener, WRITE_TIMEOUT_S)
        listener.bind((address.host, address.port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise Unavailable(
            f"cannot listen on {address.host}:{address.port}: {error.strerror}. Choose another "
            "address or port with --http HOST:PORT"
        ) from None
    port = listener.getsockname()[1]
    return listener, ListenAddress(address.host, port, address.certificate, address.key)


def set_write_timeout(listener: socket.socket, seconds: float) -> None:
    """Let the kernel close a connection whose client reads no data for this many seconds."""
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux; connections inherit it
        milliseconds = round(seconds * 1000)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)


def _check_certificate(address: ListenAddress) -> None:
    if not address.certificate:
        return
    files = f"{address.certificate} and {address.key}"
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(address.certificate, address.key, lambda: "")
    except ssl.SSLError as error:
        why = f" ({error.reason.replace('_', ' ').lower()})" if error.reason else ""
        raise Unavailable(
            f"{files} are not a certificate and its private key{why}; both files have to be PEM, "
            "and the key must not have a passphrase"
        ) from None
    except OSError as error:
        raise Unavailable(f"{files} cannot be read: {error.strerror}") from None


class HttpServer:
    """The HTTP server of a service. The constructor makes it serve in the running event loop.

    `backend`, `app`: factories of the backend and of the application; `on_ready`: called once the
    backend has started.
    """

    def __init__(
        self,
        listener: socket.socket,
        address: ListenAddress,
        backend: Callable[[], ServiceBackend],
        app: Callable[[ServiceBackend], ASGIApp],
        on_ready: Callable[[], None],
    ) -> None:
        service = self._service = backend()
        self._on_ready = on_ready
        self._server = BoundedServer(app(service), address)
        self._serving = asyncio.create_task(self._serve(listener))

    def stop(self) -> None:
        """Accept no more requests; end streams; let running requests finish within `GRACE_S`."""
        self._server.should_exit = True
        self._service.end()

    @property
    def has_ended(self) -> bool:
        """Whether the server has ended."""
        return self._serving.done()

    @property
    def error(self) -> BaseException | None:
        """The exception that ended the server, or None. Precondition: the server has ended."""
        return self._serving.exception()

    async def _serve(self, listener: socket.socket) -> None:
        service = self._service
        starting = asyncio.create_task(self._start(service))
        try:
            await self._server.serve([listener])
        except Exception as error:
            fields = event_fields("http-died", error=type(error).__name__)
            log.critical("an unexpected error ends the HTTP server", exc_info=True, extra=fields)
            raise
        finally:
            starting.cancel()
            with suppress(asyncio.CancelledError):
                await starting
            await service.close()
            listener.close()

    async def _start(self, service: ServiceBackend) -> None:
        await service.start()
        if not self._server.should_exit:
            self._on_ready()


class BoundedServer(uvicorn.Server):
    """A uvicorn server with limits against slow clients and too many connections."""

    def __init__(
        self,
        app: ASGIApp,
        address: ListenAddress,
        *,
        head_timeout_s: float = HEAD_TIMEOUT_S,
        per_address: int = CONNECTIONS_PER_ADDRESS,
        grace_s: int = GRACE_S,
    ) -> None:
        self._connections = ConnectionLimiter(head_timeout_s, per_address)
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=grace_s,
            timeout_keep_alive=KEEP_ALIVE_S,
            ssl_certfile=address.certificate or None,
            ssl_keyfile=address.key or None,
            http=partial(BoundedProtocol, self._connections),  # type: ignore[arg-type]
            limit_concurrency=CONNECTIONS_MAX,
            log_level="error",  # warnings about malformed requests would fill the log
            ws="none",
            lifespan="off",
        )
        super().__init__(config)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield  # the caller handles signals

    async def on_tick(self, counter: int) -> bool:
        self._connections.log_due(monotonic())
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await super().shutdown(sockets)
        self._connections.close()


class ConnectionLimiter:
    """Limit of connections per address, with the log lines about rejected clients."""

    def __init__(self, head_timeout_s: float, per_address: int) -> None:
        self.head_timeout_s = head_timeout_s
        self._per_address = per_address
        self._count: Counter[str] = Counter()
        self._timeouts = RateLimitedLog(
            "request-timeout",
            f"no head of a request arrived within {head_timeout_s:g} s, connection closed",
        )
        self._refused = RateLimitedLog(
            "connection-refused",
            f"a client address has {per_address} connections, a further one was refused",
        )
        self._full = RateLimitedLog(
            "connections-full",
            f"{CONNECTIONS_MAX} connections are open, a request was answered with 503",
        )

    def add(self, address: str) -> bool:
        """Count a connection. Log it and return False if its address now has too many."""
        self._count[address] += 1
        if self._count[address] <= self._per_address:
            return True
        self._refused.add(monotonic(), address)
        return False

    def remove(self, address: str) -> None:
        """Remove a connection from the count."""
        self._count[address] -= 1
        if not self._count[address]:
            del self._count[address]

    def log_head_timeout(self, address: str) -> None:
        """Log that the head of a request timed out."""
        self._timeouts.add(monotonic(), address)

    def log_full(self, address: str) -> None:
        """Log that a request is answered 503 because of too many connections."""
        self._full.add(monotonic(), address)

    def log_due(self, now: float) -> None:
        """Write the log lines that are due."""
        for rejections in (self._timeouts, self._refused, self._full):
            rejections.log_if_due(now)

    def close(self) -> None:
        """Write the remaining log lines."""
        for rejections in (self._timeouts, self._refused, self._full):
            rejections.close()


class BoundedProtocol(HttpToolsProtocol):
    """A connection with a timeout for the head of each request.

    After the first request, a head that arrives in one piece, as nearly all do, needs no timer.
    """

    def __init__(
        self,
        connections: ConnectionLimiter,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._connections = connections
        self._address = ""
        self._deadline: asyncio.TimerHandle | None = None
        """Timer that closes the connection, unless the head of a request is complete by then."""
        self._in_head = False
        """Whether part of a head has arrived."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._address = self.client[0] if self.client else ""
        if self._connections.add(self._address):
            self._expect_head()
        else:
            self._end(_TOO_MANY)

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_deadline()
        self._connections.remove(self._address)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._deadline is None and (self.cycle is None or self.cycle.response_complete):
            self._expect_head()  # the data may also be the rest of an unread body

    def on_message_begin(self) -> None:
        self._in_head = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._cancel_deadline()
        if len(self.connections) >= CONNECTIONS_MAX:
            self._connections.log_full(self._address)
        super().on_headers_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._in_head and self._deadline is None:  # pipelined: the next head has begun
            self._expect_head()

    def _expect_head(self) -> None:
        self._deadline = self.loop.call_later(
            self._connections.head_timeout_s, self._on_head_timeout
        )

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _on_head_timeout(self) -> None:
        self._deadline = None
        if self._in_head:
            self._connections.log_head_timeout(self._address)
            self._end(_HEAD_TIMEOUT)
        else:  # no data yet: browsers open connections in advance
            self._end(b"")

    def _end(self, answer: bytes) -> None:
        if not self.transport.is_closing():
            self.transport.write(answer)
            self.transport.close()


def _refusal(status: str, code: str, message: str) -> bytes:
    body = json.dumps({"error": {"code": code, "message": message}})
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nConnection: close\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode()


_HEAD_TIMEOUT = _refusal(
    "408 Request Timeout", "slow", "the head of the request did not arrive in time"
)
_TOO_MANY = _refusal(
    "429 Too Many Requests", "busy", "your address has too many connections: close some"
)
