"""A service behind a real server of HTTP, on a free port, in the loop of the test."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import httpx
import uvicorn

from driftline.index.http.application import application
from driftline.serve.gateway.server import cut_off_unread
from driftline.serve.http.operations import Settings
from tests.index.http.service import Service


@asynccontextmanager
async def served(
    service: Service, settings: Settings | None = None, unread_s: float = 60.0
) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the service, over a socket."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        app = application(service, service.schema, settings)
        cut_off_unread(listening, unread_s)
        config = uvicorn.Config(app, log_config=None, timeout_graceful_shutdown=1)
        server = uvicorn.Server(config)
        server.capture_signals = _nothing  # type: ignore[method-assign]  # those of pytest
        running = asyncio.ensure_future(server.serve([listening]))
        try:
            url = f"http://127.0.0.1:{listening.getsockname()[1]}"
            async with httpx.AsyncClient(base_url=url, timeout=20) as client:
                yield client
        finally:
            server.should_exit = True
            await running


@contextmanager
def _nothing() -> Iterator[None]:
    yield
