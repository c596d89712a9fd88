"""Requests: limits, disconnects of clients, and invalid JSON."""

from __future__ import annotations

import asyncio
import logging
import re
from pathlib import Path

import httpx
import pytest
from msgspec.structs import replace
from starlette.responses import Response
from starlette.types import Message

from driftline.index.documents.writes import Write
from driftline.index.http.application import application
from driftline.serve.errors import ApiError
from driftline.serve.http.access import Access, new_token
from driftline.serve.http.content import WATCH_AFTER_S, loads, while_connected
from driftline.serve.http.metrics import figures_in
from driftline.serve.http.operations import SERVICE, AppState, Call, HttpSettings, Operation
from driftline.serve.views.tokens import token_of
from tests.index.http.service import IndexBackend, client_of, served

LATER = token_of(21)
"""Token of a T that the second write reaches."""


async def test_excess_concurrent_requests_get_429_and_slots_are_released(
    tmp_path: Path,
) -> None:
    service = IndexBackend(tmp_path)
    async with client_of(service, HttpSettings(requests_max=2)) as client:
        waiting = []
        for number in (1, 2):
            asked = client.get("/count", params={"q": "a", "after": LATER})
            waiting.append(asyncio.ensure_future(asked))
            while service.waiting_queries < number:
                await asyncio.sleep(0)
        refused = await client.get("/count?q=a")
        assert refused.status_code == 429
        assert int(refused.headers["retry-after"]) >= 1
        for _ in range(2):
            await service.write(Write("documents", "1", {}).record())
        assert [(await each).status_code for each in waiting] == [200, 200]
        assert (await client.get("/count?q=a")).status_code == 200


@pytest.mark.parametrize(
    ("asked", "query_count"), [(f"/count?q=a&after={LATER}", 1), ("/changes", 0)]
)
async def test_client_disconnect_cancels_its_queries_without_a_log_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, asked: str, query_count: int
) -> None:
    with caplog.at_level(logging.WARNING):
        service = IndexBackend(tmp_path)
        async with served(service, HttpSettings(timeout_s=600)) as client:
            url = client.base_url
            _, writer = await asyncio.open_connection(url.host, url.port)
            writer.write(f"GET {asked} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            while service.waiting_queries < query_count or not await open_requests(client):
                await asyncio.sleep(0.005)
            assert service.cancelled_queries == 0
            writer.transport.abort()
            async with asyncio.timeout(20):
                while await open_requests(client):
                    await asyncio.sleep(0.005)
            assert (service.waiting_queries, service.cancelled_queries) == (0, query_count)
    assert caplog.text == ""


async def open_requests(client: httpx.AsyncClient) -> int:
    """Return the number of open requests without this one."""
    metrics = (await client.get("/metrics")).text
    figure = "driftline_http_open_requests "
    (line,) = [each for each in metrics.splitlines() if each.startswith(figure)]
    return round(float(line.removeprefix(figure))) - 1


async def test_internal_error_is_logged_and_hidden_from_the_client(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with caplog.at_level(logging.DEBUG, "driftline"):
        service = IndexBackend(tmp_path)

        async def broken(record: object, *, bulk: bool) -> int:
            raise ZeroDivisionError("secret")

        monkeypatch.setattr(service, "write", broken)
        async with client_of(service) as client:
            answer = await client.put("/documents/1", json={})
            assert answer.status_code == 500
            assert answer.json()["error"]["code"] == "internal"
            assert "secret" not in answer.text
    assert "secret" in caplog.text
    fields = [getattr(each, "fields", {}) for each in caplog.records]
    (entry,) = [each for each in fields if each.get("event") == "request"]
    assert (entry["method"], entry["status"], entry["operation"]) == ("PUT", 500, "put_document")


async def test_request_log_has_client_address_and_error_code(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    token, line = new_token("read", "shop")
    (tmp_path / "tokens").write_text(line)

    with caplog.at_level(logging.DEBUG, "driftline"):
        async with served(
            IndexBackend(tmp_path), HttpSettings(Access(tmp_path / "tokens"))
        ) as client:
            headers = {"Authorization": f"Bearer {token}"}
            for method, path in (
                ("GET", "/count?q=*"),
                ("GET", "/nothing"),
                ("GET", "/count?q=("),
                ("PUT", "/documents/1"),
                ("GET", "/documents/%FF"),
            ):
                await client.request(method, path, headers=headers)
    fields = [getattr(each, "fields", {}) for each in caplog.records]
    entries = [each for each in fields if each.get("event") == "request"]
    assert {each["address"] for each in entries} == {"127.0.0.1"}
    assert [(each["client"], each["code"]) for each in entries] == [
        ("shop", ""), ("", "path"), ("shop", "query"), ("shop", "right"), ("", "invalid"),
    ]  # fmt: skip


async def test_requests_are_counted_and_figures_shown(tmp_path: Path) -> None:
    async with client_of(IndexBackend(tmp_path)) as client:
        await client.put("/documents/1", json={"title": "tea"})
        assert (await client.head("/documents/1")).status_code == 200
        await client.get("/documents/2")
        metrics = (await client.get("/metrics")).text
        for line in (
            'driftline_http_requests_total{operation="put_document",status="200"} 1.0',
            'driftline_http_requests_total{operation="get_document",status="404"} 1.0',
            'driftline_http_request_seconds_count{operation="put_document"} 1.0',
            'driftline_service_documents{part="documents-0"}',
        ):
            assert line in metrics
        figures = figures_in(metrics)
        assert sum(figures[f"documents-{n}"]["documents"] for n in (0, 1)) == 1
        assert (await client.get("/readyz")).status_code == 200


def test_service_with_stalled_writes_is_not_ready(tmp_path: Path) -> None:
    async def drive() -> list[int]:
        service = IndexBackend(tmp_path)
        async with client_of(service) as client:
            found = []
            for service.stalled_s in (1.0, 30.0, 0.0):
                found.append((await client.get("/readyz")).status_code)
            return found

    assert asyncio.run(drive()) == [200, 503, 200]


async def test_request_pending_at_shutdown_gets_503(
    tmp_path: Path,
) -> None:
    sent: list[Message] = []

    async def receive() -> Message:
        if not sent:
            await asyncio.Event().wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)

    service = IndexBackend(tmp_path)
    scope = {
        "type": "http",
        "method": "GET",
        "path": "/count",
        "query_string": f"q=a&after={LATER}".encode(),
        "headers": [],
    }
    app = application(service, service.schema, HttpSettings())
    asked = asyncio.ensure_future(app(scope, receive, send))
    while not service.waiting_queries:
        await asyncio.sleep(0)
    asked.cancel()  # as uvicorn does
    await asked
    assert sent[0]["status"] == 503
    assert b"send the request again" in sent[1]["body"]


def test_streams_and_health_checks_do_not_use_request_slots() -> None:
    async def unused(call: Call) -> Response:
        raise AssertionError

    state = AppState(HttpSettings(requests_max=1, streams_max=2))
    plain = Operation("GET", "/x", unused, "x", "", tag="search")
    stream, health = replace(plain, streams=True), replace(plain, tag=SERVICE)
    with (
        state.limit_concurrency(plain),
        state.limit_concurrency(stream),
        state.limit_concurrency(stream),
        state.limit_concurrency(health),
    ):
        for full in (plain, stream):
            with pytest.raises(ApiError, match="retry later"), state.limit_concurrency(full):
                pass
        with state.limit_concurrency(health):
            pass
    with state.limit_concurrency(plain), state.limit_concurrency(stream):
        pass


async def test_stalled_bodies_get_408_and_release_their_slots(tmp_path: Path) -> None:
    async with served(IndexBackend(tmp_path), HttpSettings(idle_s=0.5, requests_max=2)) as client:
        url = client.base_url
        head = b"PUT /documents/1 HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{"
        connections = [await asyncio.open_connection(url.host, url.port) for _ in range(2)]
        for _, writer in connections:
            writer.write(head)
        while (await client.get("/count?q=*")).status_code != 429:
            pass
        for path in ("/healthz", "/metrics"):
            assert (await client.get(path)).status_code == 200, path
        for reader, writer in connections:
            assert (await reader.readline()).startswith(b"HTTP/1.1 408")
            writer.close()
        assert (await client.put("/documents/3", json={"title": "Tea"})).status_code == 200


async def test_incomplete_heads_get_408_while_streams_continue(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with served(
        IndexBackend(tmp_path), HttpSettings(heartbeat_s=0), head_timeout_s=0.1
    ) as client:
        host, port = client.base_url.host, client.base_url.port
        async with client.stream("GET", "/changes") as stream:
            events = stream.aiter_lines()
            connections = [await asyncio.open_connection(host, port) for _ in range(3)]
            half, silent, second = connections
            half[1].write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")
            second[1].write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\nGET /")
            assert (await half[0].read()).startswith(b"HTTP/1.1 408 ")
            assert await silent[0].read() == b""
            answers = await second[0].read()
            assert answers.startswith(b"HTTP/1.1 200 ")
            assert b"HTTP/1.1 408 " in answers
            for _, writer in connections:
                writer.close()
            await anext(events)
    (line,) = [each for each in caplog.records if "no head of a request" in each.message][:1]
    assert line.levelname == "WARNING"


async def test_connections_per_address_are_limited(tmp_path: Path) -> None:
    async with served(IndexBackend(tmp_path), per_address=2) as client:
        assert (await client.get("/healthz")).status_code == 200
        host, port = client.base_url.host, client.base_url.port
        _, second = await asyncio.open_connection(host, port)
        reader, third = await asyncio.open_connection(host, port)
        assert (await reader.read()).startswith(b"HTTP/1.1 429 ")
        assert (await client.get("/healthz")).status_code == 200
        for writer in (second, third):
            writer.close()


async def test_slowly_arriving_body_is_rejected_and_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with served(IndexBackend(tmp_path), HttpSettings(idle_s=0.2)) as client:
        reader, writer = await asyncio.open_connection(client.base_url.host, client.base_url.port)
        writer.write(
            b"PUT /documents/1 HTTP/1.1\r\nHost: a.localhost\r\nContent-Length: 99\r\n\r\n{"
        )
        answer = asyncio.ensure_future(reader.readline())
        for _ in range(90):
            writer.write(b" ")
            if (await asyncio.wait([answer], timeout=0.05))[0]:
                break
        assert answer.done(), "the body was not rejected while it was still arriving"
        assert (await answer).startswith(b"HTTP/1.1 408 ")
        writer.close()
    (line,) = [
        each for each in caplog.records if "body of a request arrived too slowly" in each.message
    ]
    assert line.levelname == "WARNING"


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b'\xef\xbb\xbf{"a": 1}', "it begins with a byte-order mark; send UTF-8 without one"),
        (b"9" * 5000, "an integer has too many digits: send it as a string"),
        (b'{"a": \xff}', "byte 6 is not UTF-8"),
        (b"[" * 100_000, "this is not valid JSON: it is nested too deep"),
        (b'{"a": 1, "a": 2}', "this is not valid JSON: the name 'a' occurs twice"),
        (b"[NaN]", "this is not valid JSON: NaN is not a JSON number"),
        (b"[1e999]", "this is not valid JSON: 1e999 is too large for a float"),
        (b"{", "this is not valid JSON: "),
        (b"{} {}", "a second value follows the first; in a bulk request each has its own line"),
        (b" ", "this is not valid JSON: it is empty"),
    ],
)
def test_unreadable_json_is_rejected_with_a_message(data: bytes, said: str) -> None:
    with pytest.raises(ApiError, match=re.escape(said)) as refused:
        loads(data)
    assert refused.value.code == "invalid"
    assert "sys." not in str(refused.value)


async def stay_connected() -> Message:
    await asyncio.Event().wait()
    raise AssertionError


async def test_finished_answer_leaves_no_task_behind() -> None:
    assert (
        await while_connected(stay_connected, asyncio.sleep(2 * WATCH_AFTER_S, "answer"))
        == "answer"
    )
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == {asyncio.current_task()}
