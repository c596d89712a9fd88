"""An index service in this process: the flow element by element, real searchers, and its clients,
with a server of HTTP or without."""

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


class Service(FlowBackend):
    """The backend of an index."""

    def __init__(self, directory: Path, schema: Schema = DEFAULT, shards: int = 2) -> None:
        self.schema = schema
        searchers = [
            Searcher(schema, directory / str(shard), shard, shards) for shard in range(shards)
        ]
        super().__init__(document_flow(schema), {"documents": searchers})


@asynccontextmanager
async def client_of(
    service: Service, settings: HttpSettings | None = None
) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the service, without sockets."""
    transport = httpx.ASGITransport(application(service, service.schema, settings))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        yield client


@asynccontextmanager
async def served(
    service: Service, settings: HttpSettings | None = None, unread_s: float = 60.0, **limits: Any
) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the service, over a socket. `limits`: those of `BoundedServer`."""
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
def in_a_thread(make: Callable[[], Service], settings: HttpSettings) -> Iterator[str]:
    """The URL of a service in a thread of its own."""
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
