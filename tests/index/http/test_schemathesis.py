"""Requests drawn from the description: no answer is one that it does not have, and none is 5xx."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import positive_data_acceptance

from driftline.serve.http.operations import HttpSettings
from tests.index.http.service import Service, served
from tests.index.http.test_reading import schema_of

EXAMPLES = int(os.environ.get("SCHEMATHESIS_EXAMPLES", "8"))
"""Of each operation."""

"""Not asked for: a pattern cannot say which tokens are given, nor a type what a query is."""

STREAMS = ("/changes", "/events")
"""The ends of paths that are streams: they have no end."""


@contextmanager
def in_a_thread(directory: Path) -> Iterator[str]:
    """The URL of a service."""
    ready, done = threading.Event(), threading.Event()
    url = ""

    async def serve() -> None:
        nonlocal url
        service = Service(directory, schema_of(directory))
        async with served(service, HttpSettings(within_s=1)) as client:
            for collection in ("teas", "empty"):
                path = f"/collections/{collection}/documents/1"
                await client.put(path, json={"title": "tea"})
            url = str(client.base_url)
            ready.set()
            await asyncio.to_thread(done.wait)

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    assert ready.wait(20)
    try:
        yield url
    finally:
        done.set()
        thread.join(20)


def test_every_response_conforms_to_the_openapi_description(tmp_path: Path) -> None:
    with in_a_thread(tmp_path) as url:
        described = httpx.get(f"{url}/openapi.json").json()
        schemathesis.serializer("application/x-ndjson")(lambda _, value: str(value).encode())
        schema = schemathesis.openapi.from_dict(described)
        tried = 0
        for result in schema.get_all_operations():
            assert isinstance(result, Ok)
            operation = result.ok()
            if operation.path.endswith(STREAMS):
                continue

            def try_one(case: Any) -> None:
                case.call_and_validate(base_url=url, excluded_checks=[positive_data_acceptance])

            run = given(case=operation.as_strategy())(try_one)
            quiet = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]
            settings(
                max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=quiet
            )(run)()
            tried += 1
        assert tried > 20
