"""An index service in this process: the flow element by element, and real searchers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx

from driftline.index.documents.schema import DEFAULT, Schema
from driftline.index.documents.writes import document_flow
from driftline.index.http.application import application
from driftline.index.searcher.searcher import Searcher
from driftline.serve.http.operations import Settings
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
    service: Service, settings: Settings | None = None
) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the service, without sockets."""
    transport = httpx.ASGITransport(application(service, service.schema, settings))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        yield client
