"""The HTTP server of a service: uvicorn in a thread of its own, with the backend in its loop."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import uvicorn
import uvloop
from starlette.types import ASGIApp

from driftline.engine.errors import Unavailable
from driftline.engine.events import about, log
from driftline.serve.gateway.heads import BoundedHttp
from driftline.serve.gateway.service import Service

BACKLOG = 1024

GRACE_S = 5
"""How long requests may take that are under way when the server ends."""


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
    """The server and its thread. `backend`: makes the backend, in the server's loop; `app`: what is
    served; `ready`: is called once everything answers."""

    def __init__(
        self,
        found: socket.socket,
        listening: Listening,
        backend: Callable[[], Service],
        app: Callable[[Service], ASGIApp],
        ready: Callable[[], None],
    ) -> None:
        self.service: Service | None = None
        self.error: BaseException | None = None
        """Why the thread has ended, if it was not told to."""
        self._socket = found
        self._listening = listening
        self._backend = backend
        self._app = app
        self._ready = ready
        self._server: uvicorn.Server | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="http", daemon=True)

    def start(self) -> None:
        """Begin to serve."""
        self._thread.start()

    def stop(self) -> None:
        """Take no more requests, and let those that are under way end, in `GRACE_S` at most."""
        self._over.set()
        if self._server is not None and self._loop is not None and self.service is not None:
            self._server.should_exit = True
            with suppress(RuntimeError):  # the loop is over
                self._loop.call_soon_threadsafe(self.service.end)
        elif self._loop is not None:
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._loop.stop)

    def silent_s(self, name: str, started: float) -> float:
        """For how long nothing was heard of a process that was started at a time."""
        return 0.0 if self.service is None else self.service.hearing.silent_s(name, started)

    @property
    def ended(self) -> bool:
        """Whether the thread has ended."""
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(self._serve())
        except BaseException as error:
            if not self._over.is_set():
                self.error = error
                told = about("http-died", error=type(error).__name__)
                log.critical("an unexpected error ends the HTTP server", exc_info=True, extra=told)
        finally:
            self._socket.close()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        service = self.service = self._backend()
        listening = self._listening
        config = uvicorn.Config(
            self._app(service),
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=GRACE_S,
            timeout_keep_alive=60,
            ssl_certfile=listening.certificate or None,
            ssl_keyfile=listening.key or None,
            http=BoundedHttp,
            ws="none",
            lifespan="off",
        )
        starting = asyncio.create_task(self._start(service))
        self._server = uvicorn.Server(config)
        try:
            if not self._over.is_set():
                await self._server.serve([self._socket])
        finally:
            starting.cancel()
            with suppress(asyncio.CancelledError):
                await starting
            await service.close()

    async def _start(self, service: Service) -> None:
        await service.start()
        self._ready()
