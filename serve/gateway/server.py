"""The HTTP server of a service: uvicorn, with the backend, in the loop of whoever runs it."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import uvicorn
from starlette.types import ASGIApp

from driftline.engine.errors import Unavailable
from driftline.engine.events import about, log
from driftline.serve.gateway.service import Service

BACKLOG = 1024

GRACE_S = 5
"""How long requests may take that are under way when the server ends."""

CONNECTIONS_MAX = 4096
"""Further requests are answered 503 while there are so many connections."""

UNREAD_S = 60.0
"""A client that reads nothing for so long, though it is sent something, is cut off."""


@dataclass(frozen=True, slots=True)
class Listening:
    """Where the server listens; `certificate`, `key`: files for TLS, "" without."""

    host: str = "127.0.0.1"
    port: int = 8080
    certificate: str = ""
    key: str = ""

    @property
    def url(self) -> str:
        """What a browser is told."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http{'s' * bool(self.certificate)}://{host}:{self.port}"


def bound(listening: Listening) -> tuple[socket.socket, Listening]:
    """A socket that listens there, and where that is, if the port was 0. Raises Unavailable, also
    for a certificate that cannot be used."""
    _check_certificate(listening)
    family = socket.AF_INET6 if ":" in listening.host else socket.AF_INET
    # With the protocol named, asyncio sends what is written at once (TCP_NODELAY).
    found = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        cut_off_unread(found, UNREAD_S)
        found.bind((listening.host, listening.port))
        found.listen(BACKLOG)
    except OSError as error:
        found.close()
        raise Unavailable(
            f"cannot listen on {listening.host}:{listening.port}: {error.strerror}; is it in use "
            "by another program? Give another one with --http HOST:PORT"
        ) from None
    port = found.getsockname()[1]
    where = Listening(listening.host, port, listening.certificate, listening.key)
    return found, where


def cut_off_unread(listening: socket.socket, seconds: float) -> None:
    """Let the kernel end connections of this socket whose client reads nothing for so long."""
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux; connections inherit it
        milliseconds = round(seconds * 1000)
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)


def _check_certificate(listening: Listening) -> None:
    if not listening.certificate:
        return
    files = f"{listening.certificate} and {listening.key}"
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(listening.certificate, listening.key, lambda: "")
    except ssl.SSLError as error:
        why = f" ({error.reason.replace('_', ' ').lower()})" if error.reason else ""
        raise Unavailable(
            f"{files} are no certificate and its private key, both as PEM, the key without a "
            f"passphrase{why}"
        ) from None
    except OSError as error:
        raise Unavailable(f"{files} cannot be read: {error.strerror}") from None


class HttpServer:
    """The server, which begins to serve in the running loop once it is made.

    `backend`: makes the backend; `app`: what is served; `ready`: is called once everything answers.
    """

    def __init__(
        self,
        found: socket.socket,
        listening: Listening,
        backend: Callable[[], Service],
        app: Callable[[Service], ASGIApp],
        ready: Callable[[], None],
    ) -> None:
        service = self._service = backend()
        self._ready = ready
        config = uvicorn.Config(
            app(service),
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=GRACE_S,
            timeout_keep_alive=60,
            ssl_certfile=listening.certificate or None,
            ssl_keyfile=listening.key or None,
            http="httptools",
            limit_concurrency=CONNECTIONS_MAX,
            log_level="error",  # a warning for each thing that strangers send would fill the log
            ws="none",
            lifespan="off",
        )
        self._server = _Server(config)
        self._serving = asyncio.create_task(self._serve(found))

    def stop(self) -> None:
        """Take no more requests, and let those that are under way end, in `GRACE_S` at most."""
        self._server.should_exit = True
        self._service.end()

    @property
    def ended(self) -> bool:
        """Whether nothing is served any more."""
        return self._serving.done()

    @property
    def error(self) -> BaseException | None:
        """Why it has ended, if it was not told to. Precondition: it has ended."""
        return self._serving.exception()

    async def _serve(self, found: socket.socket) -> None:
        service = self._service
        starting = asyncio.create_task(self._start(service))
        try:
            await self._server.serve([found])
        except Exception as error:
            told = about("http-died", error=type(error).__name__)
            log.critical("an unexpected error ends the HTTP server", exc_info=True, extra=told)
            raise
        finally:
            starting.cancel()
            with suppress(asyncio.CancelledError):
                await starting
            await service.close()
            found.close()

    async def _start(self, service: Service) -> None:
        await service.start()
        self._ready()


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield  # they are for whoever runs the server
