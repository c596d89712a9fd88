"""HTTP server for `/metrics`, `/healthz` and `/readyz`, in an agent also for `/targets`.

It uses the server of prometheus-client. The pages are read-only and contain no secrets; a client
that is silent for `CLIENT_TIMEOUT_S` is disconnected. Only processes that serve metrics import this
module: its libraries load slowly, which would delay a restart.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from socketserver import TCPServer
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit
from wsgiref.simple_server import WSGIRequestHandler

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.exposition import ThreadingWSGIServer

from driftline.deploy.runtime.metrics.catalogue import TaggedSamples, registry_of
from driftline.deploy.runtime.metrics.endpoint import Endpoint, read_port_file, write_port_file
from driftline.deploy.runtime.sockets.listening import resolve
from driftline.engine.events import event_fields, log

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication

CLIENT_TIMEOUT_S = 10.0
"""Time in seconds after which a silent client is disconnected."""

Targets = Callable[[str, int], list[dict[str, object]]]
"""(address at which the client contacted the server, port) -> targets to scrape, in the form of
Prometheus' `http_sd_config`."""


class ProcessHealth(Protocol):
    """Health and readiness of a process. Thread-safe."""

    def why_not_healthy(self, now: float) -> str:
        """Return why it is not healthy; "" if it is. `now`: seconds, monotonic."""

    def why_not_ready(self) -> str:
        """Return why it is not ready; "" if it is."""


def pages(
    registry: CollectorRegistry, health: ProcessHealth, targets: Targets | None = None
) -> WSGIApplication:
    """Return the WSGI application of a process."""
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
            scrape_targets = targets(host or environ["SERVER_NAME"], int(environ["SERVER_PORT"]))
            status, text, kind = "200 OK", json.dumps(scrape_targets, indent=1), "application/json"
        else:
            status = "404 Not Found"
            text = "no such page: use /metrics, /healthz or /readyz, at an agent also /targets"
        start(status, [("Content-Type", f"{kind}; charset=utf-8")])
        return [f"{text}\n".encode()]

    return answer


class MetricsServer(ThreadingWSGIServer):
    """HTTP server that listens from its construction on. Raises OSError for an unusable address."""

    def __init__(
        self,
        family: socket.AddressFamily,
        address: tuple[str, int],
        application: WSGIApplication,
        client_timeout_s: float = CLIENT_TIMEOUT_S,
    ) -> None:
        self.address_family = family
        handler = type("_Handler", (_Handler,), {"timeout": client_timeout_s})
        super().__init__(address, handler)
        self.set_app(application)
        self._is_stopping = False

    def server_bind(self) -> None:
        """Bind without the reverse host name lookup of the base class, which may take long."""
        TCPServer.server_bind(self)
        host, port = self.socket.getsockname()[:2]
        self.server_name, self.server_port = str(host), int(port)
        self.setup_environ()

    @property
    def url(self) -> str:
        """The server's URL."""
        host = f"[{self.server_name}]" if ":" in self.server_name else self.server_name
        return f"http://{host}:{self.server_port}"

    def serve(self) -> None:
        """Serve until `stop` is called, which wakes a server without clients."""
        while not self._is_stopping:
            self.handle_request()

    def stop(self) -> None:
        """Stop serving."""
        self._is_stopping = True
        with suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)  # wakes the serving thread

    def handle_error(self, request: object, client_address: object) -> None:
        """Print no traceback, as the base class would, for example if a client has disconnected."""


class _Handler(WSGIRequestHandler):
    """Handler of one request."""

    server_version = "driftline"
    sys_version = ""

    def log_message(self, format: str, *args: object) -> None:
        """Log no requests."""


@contextmanager
def serving(
    endpoint: Endpoint,
    name: str,
    tagged_samples: TaggedSamples,
    health: ProcessHealth,
    port_file: Path | None = None,
    targets: Targets | None = None,
) -> Iterator[None]:
    """Serve the metrics of a process within this context.

    `name`: of the process, as in log lines; `port_file`: the file in which the server publishes its
    port, if the endpoint has port 0; `targets`: returns the scrape targets. If the port is in use,
    the process logs a warning and continues without metrics.
    """
    try:
        server = _make_server(
            endpoint, pages(registry_of(tagged_samples), health, targets), port_file
        )
    except OSError as error:
        text, fields = endpoint.fault(error), event_fields("metrics-unavailable", name=name)
        log.warning("%s: %s; continuing without metrics", name, text, extra=fields)
        yield
        return
    url = f"{server.url}/metrics"
    log.info(
        "metrics of %s at %s", name, url, extra=event_fields("listening", name=name, address=url)
    )
    thread = threading.Thread(target=server.serve, daemon=True, name="metrics")
    with server:
        thread.start()
        try:
            yield
        finally:
            server.stop()
            thread.join(1.0)


def _make_server(
    endpoint: Endpoint, page: WSGIApplication, port_file: Path | None
) -> MetricsServer:
    """Return a server at the endpoint's port; with a `port_file`, at the port in it if that is
    free. Raises OSError."""
    server = None
    if port_file is not None and (last_port := read_port_file(port_file)):
        with suppress(OSError):
            server = MetricsServer(*resolve(endpoint.host, last_port), page)
    server = server or MetricsServer(*resolve(endpoint.host, endpoint.port), page)
    if port_file is not None:
        try:
            write_port_file(port_file, server.server_port)
        except OSError:
            server.server_close()
            raise
    return server
