"""In-process index service with real searchers, and HTTP clients with or without a socket."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx

from driftline.index.documents.schema import DEFAULT, Schema
from driftline.index.documents.writes import document_flow
from driftline.index.http.application import application
from driftline.index.searcher.searcher import Searcher
from driftline.serve.gateway.server import BoundedServer, ListenAddress, set_write_timeout
from driftline.serve.http.operations import HttpSettings
from tests.serve.http.backends import FlowBackend


class IndexBackend(FlowBackend):
    """Backend of an index service."""

    def __init__(self, directory: Path, schema: Schema = DEFAULT, shards: int = 2) -> None:
        self.schema = schema
        searchers = [
            Searcher(schema, directory / str(shard), shard, shards) for shard in range(shards)
        ]
        super().__init__(document_flow(schema), {"documents": searchers})


@asynccontextmanager
async def client_of(
    service: IndexBackend, settings: HttpSettings | None = None
) -> AsyncIterator[httpx.AsyncClient]:
    """Yield a client that calls the service without sockets."""
    transport = httpx.ASGITransport(application(service, service.schema, settings))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        yield client


@asynccontextmanager
async def served(
    service: IndexBackend,
    settings: HttpSettings | None = None,
    unread_s: float = 60.0,
    **limits: Any,
) -> AsyncIterator[httpx.AsyncClient]:
    """Yield a client of the service over a socket. `limits`: passed to `BoundedServer`."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        app = application(service, service.schema, settings)
        set_write_timeout(listening, unread_s)
        server = BoundedServer(app, ListenAddress(), grace_s=1, **limits)
        running = asyncio.ensure_future(server.serve([listening]))
        try:
            url = f"http://127.0.0.1:{listening.getsockname()[1]}"
            async with httpx.AsyncClient(base_url=url, timeout=20) as client:
                yield client
        finally:
            server.should_exit = True
            await running


@contextmanager
def serve_in_thread(make: Callable[[], IndexBackend], settings: HttpSettings) -> Iterator[str]:
    """Run a service in a thread and yield its URL."""
    ready, done = threading.Event(), threading.Event()
    url = ""

    async def serve() -> None:
        nonlocal url
        async with served(make(), settings) as client:
            url = str(client.base_url)
            ready.set()
            await asyncio.to_thread(done.wait)

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    assert ready.wait(60)
    try:
        yield url
    finally:
        done.set()
        thread.join(20)
