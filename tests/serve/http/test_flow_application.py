"""Key-value views and output streams of any flow over HTTP."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import httpx

from driftline import Flow, ReducingState
from driftline.engine.errors import Unavailable
from driftline.serve.http.application import build
from driftline.serve.http.flow_application import changes_operation, event_encoder, value_operations
from driftline.serve.http.operations import HttpSettings
from driftline.serve.http.reads import changes
from driftline.serve.journal.merging import Span
from driftline.serve.views.keyvalue import KeyValueView
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

    operations = [*value_operations(backend, ["counts"]), changes_operation(backend, ["counts"])]
    app = build("Counts", "", operations, backend, ready, HttpSettings(heartbeat_s=0.01))
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        yield client


def backend_of() -> FlowBackend:
    return FlowBackend(counting(), {"counts": [KeyValueView(0)]})


async def test_values_are_read_as_of_a_token() -> None:
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
        rest = (await client.get("/views/counts?prefix=t&start_after=tea")).json()["items"]
        assert [(row["key"], row["value"]) for row in rest] == [("the", 1)]
        for path in ("/views/counts/none", "/views/counts/7?kind=json", "/views/cuonts/the"):
            absent = await client.get(path)
            assert absent.status_code == 404
            shown = absent.json()["error"].get("at", "0" * 14)
            assert len(shown) == 14, "T must be encoded as a label"
        assert (await client.get("/views/counts/x?kind=json")).status_code == 400
        backend.forget_before(41)
        assert (await client.get(f"/views/counts/the?at={newest['at']}")).status_code == 200
        assert (await client.get("/views/counts/the?at=00000000000000")).status_code == 410


UNUSUAL_KEYS = [
    2**40,
    -1.5,
    float("inf"),
    "",
    "a",
    "inf",
    "z" * 4096,
    b"\xff",
    None,
    (1, "a"),
    ("x",),
]
"""Keys of all types, also types that JSON lacks, and of the maximum length."""


def outputs_of() -> Flow:
    flow = Flow("outputs")
    flow.source("outputs").sink("counts")
    return flow


async def test_cursor_pages_all_kinds_of_keys_as_of_one_time() -> None:
    backend = FlowBackend(outputs_of(), {"counts": [KeyValueView(0)]})
    async with client_of(backend) as client:
        for number, key in enumerate(UNUSUAL_KEYS):
            await backend.write((key, number))
        # These keys are too long for the parameters of a request.
        for key in ("z" * 4097, b"z" * 4097, ("z" * 4096,)):
            await backend.write((key, 100))
        found: list[object] = []
        cursor: str | None = ""
        while cursor is not None:
            page = (await client.get("/views/counts", params={"limit": 2, "cursor": cursor})).json()
            await backend.write(("b", 100))
            found += [row["value"] for row in page["items"]]
            cursor = page["cursor"]
        whole = (await client.get("/views/counts")).json()
        assert whole["cursor"] is None
        values = [row["value"] for row in whole["items"]]
        assert found == [value for value in values if value != 100]
        assert set(found) == set(range(len(UNUSUAL_KEYS)))
        for wrong in ({"cursor": "AAAA"}, {"cursor": "\u00e9"}):
            refused = await client.get("/views/counts", params=wrong)
            assert refused.json()["error"]["parameter"] == "cursor"


async def test_list_starts_after_any_text_or_number() -> None:
    backend = FlowBackend(outputs_of(), {"counts": [KeyValueView(0)]})
    async with client_of(backend) as client:
        for key in (1, 2, 4, "019", "02", "021", "03"):
            await backend.write((key, 0))
        for query, keys in (
            ({"start_after": "020"}, ["021", "03"]),
            ({"start_after": "019", "prefix": "02"}, ["02", "021"]),
            ({"start_after": "1.5", "kind": "json"}, [2, 4, "019", "02", "021", "03"]),
        ):
            found = (await client.get("/views/counts", params=query)).json()
            assert [row["key"] for row in found["items"]] == keys, query


async def test_page_of_large_values_has_fewer_rows() -> None:
    backend = FlowBackend(outputs_of(), {"counts": [KeyValueView(0)]})
    async with client_of(backend) as client:
        for number in range(5):
            await backend.write((number, "a" * 3_000_000))
        await backend.write((9, "a" * 12_000_000))
        sizes: list[int] = []
        cursor: str | None = ""
        while cursor is not None:
            page = (await client.get("/views/counts", params={"cursor": cursor})).json()
            sizes.append(len(page["items"]))
            cursor = page["cursor"]
        assert sizes == [2, 2, 1, 1]


async def test_too_deeply_nested_value_is_replaced_in_the_stream() -> None:
    backend = FlowBackend(outputs_of(), {"counts": [KeyValueView(0)]})
    for levels in (499, 900):
        value: object = 0
        for number in range(levels):
            value = (value,) if number % 2 else {"a": value}
        await backend.write((levels, value))
    await backend.write(("end", 1))
    async with (
        client_of(backend) as client,
        aclosing(changes(backend, 0, event_encoder(["counts"]), 60)) as events,
    ):
        received = (await anext(events)).decode()
        listed = await client.get("/views/counts")
    assert '"value":["end",1]' in received
    assert received.count("(nested more than 500 deep)") == 1
    assert [row["key"] for row in listed.json()["items"]] == [499, 900, "end"]


async def test_change_stream_of_an_unreadable_journal_ends_with_an_error() -> None:
    class DamagedJournalBackend(FlowBackend):
        async def spans(self, since: int) -> AsyncGenerator[Span, None]:
            yield Span(since, since, [])
            raise Unavailable("the journal is damaged")

    backend = DamagedJournalBackend(outputs_of(), {"counts": [KeyValueView(0)]})
    events = [each async for each in changes(backend, 0, event_encoder(["counts"]), 60)]
    [received] = [each.decode() for each in events]
    assert received.startswith("event: error\n")
    assert '"code":"unavailable","message":"the journal is damaged"' in received


async def test_change_stream_includes_dead_letters_with_their_error() -> None:
    flow = Flow("prices")
    flow.source("prices").map(lambda row: row["price"], name="price").sink("counts")

    backend = FlowBackend(flow, {"counts": [KeyValueView(0)]}, dead_letters=True)
    for record in ({"price": 3}, {"cost": 4}, {"price": 5}):
        await backend.write(record)
    async with aclosing(changes(backend, 0, event_encoder(["counts"]), 60)) as events:
        data = (await anext(events)).decode().splitlines()
    parsed = [json.loads(line[6:]) for line in data if line.startswith("data: ")]
    outputs = [output for each in parsed for output in each["outputs"]]
    good, letter, after = outputs
    assert (good, after) == ({"sink": "counts", "value": 3}, {"sink": "counts", "value": 5})
    failed = letter["dead_letter"]
    assert (failed["operator"], failed["record"]) == ("price", {"cost": 4})
    assert "KeyError" in failed["error"]
    assert Path(__file__).name in failed["line"]
