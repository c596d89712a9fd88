"""Serves `/metrics`, `/healthz`, `/readyz`, and of an agent `/targets`.

The server is that of prometheus-client. It only reads, and what it tells has no secrets; a client
that is silent for `CLIENT_S` is cut. Only processes that serve metrics import this: the libraries
for it take a while to load, which a process that is started again should not take for nothing.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from socketserver import TCPServer
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit
from wsgiref.simple_server import WSGIRequestHandler

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.exposition import ThreadingWSGIServer

from driftline.deploy.runtime.metrics.catalogue import Tagged, registry_of
from driftline.deploy.runtime.metrics.endpoint import Endpoint, note_port, noted_port
from driftline.engine.events import about, log

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication

CLIENT_S = 10.0
"""How long a client may be silent, in seconds."""

Targets = Callable[[str, int], list[dict[str, object]]]
"""Address at which a client has reached the server, and its port -> what is to be scraped, in the
form of Prometheus' `http_sd_config`."""


class Condition(Protocol):
    """How a process is; any thread may ask."""

    def why_not_healthy(self, now: float) -> str:
        """Why it is not healthy; "" if it is. `now`: seconds, monotonic."""

    def why_not_ready(self) -> str:
        """Why it is not ready; "" if it is."""


def pages(
    registry: CollectorRegistry, health: Condition, targets: Targets | None = None
) -> WSGIApplication:
    """The pages of a process."""
    metrics = make_wsgi_app(registry)

    def answer(environ: dict[str, Any], start: StartResponse) -> Iterable[bytes]:
        path, kind = environ["PATH_INFO"], "text/plain"
        if path == "/metrics" or environ["REQUEST_METHOD"] != "GET":
            page: Iterable[bytes] = metrics(environ, start)
            return page
        if path == "/healthz":
            fault = health.why_not_healthy(monotonic())
            status, text = ("503 Service Unavailable", fault) if fault else ("200 OK", "ok")
        elif path == "/readyz":
            fault = health.why_not_ready()
            status, text = ("503 Service Unavailable", fault) if fault else ("200 OK", "ready")
        elif path == "/targets" and targets is not None:
            host = urlsplit(f"//{environ.get('HTTP_HOST', '')}").hostname
            found = targets(host or environ["SERVER_NAME"], int(environ["SERVER_PORT"]))
            status, text, kind = "200 OK", json.dumps(found, indent=1), "application/json"
        else:
            status = "404 Not Found"
            text = "there are /metrics, /healthz and /readyz; of an agent /targets"
        start(status, [("Content-Type", f"{kind}; charset=utf-8")])
        return [f"{text}\n".encode()]

    return answer


class MetricsServer(ThreadingWSGIServer):
    """Listens from the beginning. Raises OSError if the address cannot be used."""

    def __init__(
        self,
        family: socket.AddressFamily,
        place: tuple[str, int],
        application: WSGIApplication,
        client_s: float = CLIENT_S,
    ) -> None:
        self.address_family = family
        handler = type("_Handler", (_Handler,), {"timeout": client_s})
        super().__init__(place, handler)
        self.set_app(application)
        self._over = False

    def server_bind(self) -> None:
        """Bind. The base class would look up the name of the host, which may take long."""
        TCPServer.server_bind(self)
        host, port = self.socket.getsockname()[:2]
        self.server_name, self.server_port = str(host), int(port)
        self.setup_environ()

    @property
    def url(self) -> str:
        """Where it listens."""
        host = f"[{self.server_name}]" if ":" in self.server_name else self.server_name
        return f"http://{host}:{self.server_port}"

    def serve(self) -> None:
        """Serve until it is stopped; without a client this waits, and costs nothing."""
        while not self._over:
            self.handle_request()

    def stop(self) -> None:
        """Serve no more."""
        self._over = True
        with suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)  # wakes the thread that serves

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of clients that have gone: the base class would print a traceback."""


class _Handler(WSGIRequestHandler):
    """Answers one request."""

    server_version = "driftline"
    sys_version = ""

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing of requests."""


@contextmanager
def serving(
    endpoint: Endpoint,
    name: str,
    given: Tagged,
    health: Condition,
    note: Path | None = None,
    targets: Targets | None = None,
) -> Iterator[None]:
    """Serve the metrics of a process within this context.

    `name`: of the process, as in log lines; `note`: where the port is noted, if any will do;
    `targets`: where others serve. If the port is taken, the process goes on without.
    """
    try:
        server = _listening(endpoint, pages(registry_of(given), health, targets), note)
    except OSError as error:
        text, told = endpoint.fault(error), about("metrics-unavailable", name=name)
        log.warning("%s: %s; it goes on without", name, text, extra=told)
        yield
        return
    url = f"{server.url}/metrics"
    log.info("metrics of %s at %s", name, url, extra=about("listening", name=name, address=url))
    thread = threading.Thread(target=server.serve, daemon=True, name="metrics")
    with server:
        thread.start()
        try:
            yield
        finally:
            server.stop()
            thread.join(1.0)


def _listening(endpoint: Endpoint, page: WSGIApplication, note: Path | None) -> MetricsServer:
    """Return a server at the port; if any will do, at that of the process before, if it is free."""
    server = None
    if note is not None and (before := noted_port(note)):
        with suppress(OSError):
            server = MetricsServer(*replace(endpoint, port=before).place(), page)
    server = server or MetricsServer(*endpoint.place(), page)
    if note is not None:
        try:
            note_port(note, server.server_port)
        except OSError:
            server.server_close()
            raise
    return server
