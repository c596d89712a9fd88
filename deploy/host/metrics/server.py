"""The HTTP server of a process: `/metrics`, `/healthz`, `/readyz`, of an agent `/targets`.

It only reads, and what it tells has no secrets. Clients may be slow or hostile, so all is bounded:
`CONNECTIONS_MAX` connections, each with a thread; the oldest one is cut for a new one, as a scrape
takes milliseconds; no connection lives longer than `CONNECTION_S`; the head of a request has
`HEAD_BYTES` at most, and nothing behind it is read. Without a connection the server waits, and
costs nothing.

A copy of the process that a function forks has no thread of the server; its sockets are closed in
the copy, so that it holds no port.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from http.client import LineTooLong
from io import BufferedIOBase
from socketserver import TCPServer
from time import monotonic

from prometheus_client import CollectorRegistry, MetricsHandler

from driftline.deploy.host.metrics.health import Condition
from driftline.engine.events import about, log

CONNECTIONS_MAX = 8
"""Connections, and threads, at the same time."""

CONNECTION_S = 10.0
"""How long a connection may take, in seconds."""

ROOM_WITHIN_S = 0.2
"""How long a new connection waits for the end of the one that is cut for it."""

HEAD_BYTES = 1 << 14
"""The size of a request's first line and headers, at most."""

LISTENING_MAX = 16
"""Connections that the kernel keeps until they are accepted."""


Targets = Callable[[str, int], list[dict[str, object]]]
"""Address and port at which a client has reached the server -> what is to be scraped, in the form
of Prometheus' `http_sd_config`."""


class MetricsServer(TCPServer):
    """Listens from the beginning. Raises OSError if the address cannot be used."""

    allow_reuse_address = True
    request_queue_size = LISTENING_MAX

    def __init__(
        self,
        family: socket.AddressFamily,
        place: tuple[str, int],
        registry: CollectorRegistry,
        health: Condition,
        targets: Targets | None = None,
        connection_s: float = CONNECTION_S,
    ) -> None:
        self.address_family = family
        self.registry, self.health, self.targets = registry, health, targets
        self._connection_s = connection_s
        self._open: dict[socket.socket, float] = {}
        """Connection -> when it was accepted, oldest first."""
        self._room = threading.Semaphore(CONNECTIONS_MAX)
        self._over = False
        self._thread = threading.Thread(target=self._serve, daemon=True, name="metrics")
        super().__init__(place, _Handler)
        self._close_in_copies()

    @property
    def url(self) -> str:
        """Where it listens."""
        host, port = self.socket.getsockname()[:2]
        return f"http://{f'[{host}]' if ':' in host else host}:{port}"

    @property
    def port(self) -> int:
        """The port at which it listens."""
        return int(self.socket.getsockname()[1])

    @property
    def connections(self) -> int:
        """How many connections there are; each has a thread."""
        return len(self._open)

    def start(self) -> None:
        """Serve, in a thread."""
        self._thread.start()

    def stop(self) -> None:
        """Serve no more. Precondition: it was started."""
        self._over = True
        with suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)  # wakes the thread
        self._thread.join(1.0)
        for connection in list(self._open):
            _cut(connection)
        self.server_close()

    def _serve(self) -> None:
        while not self._over:
            self.timeout = 1.0 if self._open else None
            self.handle_request()
            for connection, since in list(self._open.items()):
                if monotonic() - since > self._connection_s:
                    _cut(connection)

    def process_request(
        self, request: socket.socket | tuple[bytes, socket.socket], client_address: object
    ) -> None:
        """Answer in a thread, if there is room."""
        assert isinstance(request, socket.socket)
        if not self._room.acquire(blocking=False):
            for oldest in list(self._open)[:1]:
                _cut(oldest)
            if not self._room.acquire(timeout=ROOM_WITHIN_S):
                self.shutdown_request(request)
                return
        self._open[request] = monotonic()
        answer = threading.Thread(
            target=self._answer, args=(request, client_address), daemon=True, name="scrape"
        )
        answer.start()

    def _answer(self, request: socket.socket, client_address: object) -> None:
        try:
            self.finish_request(request, client_address)
        except OSError:  # the client has gone, or was cut
            pass
        except Exception as error:
            told = about("metrics-failed", error=type(error).__name__)
            log.debug("a request for metrics failed: %r", error, extra=told)
        finally:
            self._open.pop(request, None)
            self.shutdown_request(request)
            self._room.release()

    def handle_error(
        self, request: socket.socket | tuple[bytes, socket.socket], client_address: object
    ) -> None:
        """Say nothing: the base class would print a traceback."""

    def _close_in_copies(self) -> None:
        mine: Callable[[], MetricsServer | None] = weakref.ref(self)

        def close() -> None:
            server = mine()
            if server is not None:
                for copy in (server.socket, *server._open):
                    copy.close()

        os.register_at_fork(after_in_child=close)


def _cut(connection: socket.socket) -> None:
    """End a connection: the thread that reads it, or writes to it, wakes up."""
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


class _Head(BufferedIOBase):
    """The head of a request: lines, `HEAD_BYTES` together at most."""

    def __init__(self, file: BufferedIOBase) -> None:
        self._file = file
        self._left = HEAD_BYTES

    def readline(self, size: int | None = -1, /) -> bytes:
        """A line. Raises LineTooLong."""
        line = self._file.readline(self._left + 1)
        self._left -= len(line)
        if self._left < 0:
            raise LineTooLong("head")
        return line

    def close(self) -> None:
        """Close the file beneath."""
        self._file.close()


class _Handler(MetricsHandler):
    """Answers one request."""

    server: MetricsServer

    def setup(self) -> None:
        """Bound the head."""
        super().setup()
        self.rfile = _Head(self.rfile)

    def version_string(self) -> str:
        """The header `Server`."""
        return "driftline"

    def do_GET(self) -> None:
        """Answer."""
        path = self.path.partition("?")[0]
        if path == "/metrics":
            self.registry = self.server.registry
            super().do_GET()
        elif path == "/healthz":
            self._say(self.server.health.why_not_healthy(monotonic()), "ok")
        elif path == "/readyz":
            self._say(self.server.health.why_not_ready(), "ready")
        elif path == "/targets" and self.server.targets is not None:
            host, port = self.connection.getsockname()[:2]
            found = self.server.targets(str(host).removeprefix("::ffff:"), int(port))
            targets = json.dumps(found, indent=1)
            self._write(200, targets, "application/json")
        else:
            self._write(404, "there are /metrics, /healthz and /readyz; of an agent /targets")

    def _say(self, fault: str, otherwise: str) -> None:
        self._write(503 if fault else 200, fault or otherwise)

    def _write(self, status: int, text: str, kind: str = "text/plain") -> None:
        data = f"{text}\n".encode()
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
