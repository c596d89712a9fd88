"""Key-value views and the outputs of any flow over HTTP."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import httpx

from driftline import Flow, ReducingState
from driftline.serve.hosting.keyvalues import HostedKeyValues
from driftline.serve.http.application import build
from driftline.serve.http.changes import changes, journal_operation, told_of
from driftline.serve.http.settings import Settings
from driftline.serve.http.values import value_operations
from tests.serve.http.backends import FlowBackend


def counting() -> Flow:
    flow = Flow("counting")
    total = ReducingState[int]("total", lambda a, b: a + b)
    (
        flow.source("words", of=str)
        .key_by(lambda word: word)
        .scan(lambda word, state: (word, state.add(1)), total, name="count")
        .sink("counts")
    )
    return flow


@asynccontextmanager
async def client_of(backend: FlowBackend) -> AsyncIterator[httpx.AsyncClient]:
    async def ready() -> None:
        pass

    operations = [*value_operations(backend, ["counts"]), journal_operation(backend, ["counts"])]
    app = build("Counts", "", operations, backend, ready, Settings(heartbeat_s=0.01))
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        yield client


def backend_of() -> FlowBackend:
    return FlowBackend(counting(), {"counts": [HostedKeyValues(0)]})


def test_values_are_read_as_of_a_token() -> None:
    async def drive() -> None:
        backend = backend_of()
        async with client_of(backend) as client:
            for word in ("a/b", "tea", "a/b", "the"):
                await backend.write(word)
            newest = (await client.get("/views/counts/a%2Fb")).json()
            assert (newest.get("key"), newest.get("value")) == ("a/b", 2)
            at = (await client.get("/views/counts/the")).json()["label"]
            await backend.write("a/b")
            assert (await client.get("/views/counts/a%2Fb")).json()["value"] == 3
            again = await client.get("/views/counts/a%2Fb", params={"at": at})
            assert again.json() == {**newest, "at": at}
            listed = (await client.get("/views/counts?prefix=t&limit=1")).json()["items"]
            assert [(row["key"], row["value"]) for row in listed] == [("tea", 1)]
            rest = (await client.get("/views/counts?prefix=t&behind=tea")).json()["items"]
            assert [(row["key"], row["value"]) for row in rest] == [("the", 1)]
            for path in ("/views/counts/none", "/views/counts/7?kind=json", "/views/cuonts/the"):
                absent = await client.get(path)
                assert absent.status_code == 404
                shown = absent.json()["error"].get("at", "0" * 14)
                assert len(shown) == 14, "a T is shown as a label"
            assert (await client.get("/views/counts/x?kind=json")).status_code == 400
            backend.retain(41)
            assert (await client.get(f"/views/counts/the?at={newest['at']}")).status_code == 200
            assert (await client.get("/views/counts/the?at=00000000000000")).status_code == 410

    asyncio.run(drive())


def test_dead_letters_are_among_the_changes_and_say_what_failed() -> None:
    flow = Flow("prices")
    flow.source("prices").map(lambda row: row["price"], name="price").sink("counts")

    async def drive() -> None:
        backend = FlowBackend(flow, {"counts": [HostedKeyValues(0)]}, dead_letters=True)
        for record in ({"price": 3}, {"cost": 4}, {"price": 5}):
            await backend.write(record)
        async with aclosing(changes(backend, 0, told_of(["counts"]), 60)) as events:
            data = (await anext(events)).decode().splitlines()
        told = [json.loads(line[6:]) for line in data if line.startswith("data: ")]
        outputs = [output for each in told for output in each["outputs"]]
        good, letter, after = outputs
        assert (good, after) == ({"sink": "counts", "value": 3}, {"sink": "counts", "value": 5})
        failed = letter["dead_letter"]
        assert (failed["operator"], failed["record"]) == ("price", {"cost": 4})
        assert "KeyError" in failed["error"]
        assert Path(__file__).name in failed["line"]

    asyncio.run(drive())


def test_a_description_names_every_operation() -> None:
    async def drive() -> None:
        async with client_of(backend_of()) as client:
            described = (await client.get("/openapi.json")).json()
            assert set(described["paths"]) == {
                *("/healthz", "/readyz", "/metrics", "/figures", "/changes"),
                *("/views/{name}", "/views/{name}/{key}"),
            }
            names = [
                operation["operationId"]
                for path in described["paths"].values()
                for operation in path.values()
            ]
            assert len(set(names)) == len(names)
            assert json.dumps(described["paths"]["/views/{name}"]).count('"in": "query"') == 6

    asyncio.run(drive())
