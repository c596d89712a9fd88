"""Event streams: changes exactly once, in order, resumable, with back-pressure; and watches."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from driftline.index.http import events as watching
from driftline.serve.http.operations import HttpSettings
from tests.index.http.service import IndexBackend, client_of, served

Event = tuple[str, str, dict[str, Any]]
"""(name, id, data)"""

BEGINNING = "00000000000000"


async def events(answer: httpx.Response) -> AsyncIterator[Event]:
    name = id = ""
    async for line in answer.aiter_lines():
        field, _, value = line.partition(": ")
        match field:
            case "event":
                name = value
            case "id":
                id = value
            case "data":
                yield name, id, json.loads(value)
            case "":
                name = id = ""


async def read(
    client: httpx.AsyncClient,
    count: int,
    since: str,
    headers: dict[str, str] | None = None,
    path: str = "/changes",
) -> list[Event]:
    """Open a stream and return its first events."""
    found: list[Event] = []
    query = {"from": since}
    async with client.stream("GET", path, params=query, headers=headers) as answer:
        assert answer.status_code == 200, await answer.aread()
        assert answer.headers["content-type"].startswith("text/event-stream")
        async for event in events(answer):
            found.append(event)
            if len(found) == count:
                break
    return found


async def test_changes_arrive_once_in_order_from_any_resume_position(
    tmp_path: Path,
) -> None:
    async with served(IndexBackend(tmp_path), HttpSettings(heartbeat_s=60)) as client:
        labels = []
        for n in range(6):
            answer = await client.put(f"/documents/{n % 2}", json={"n": n})
            labels.append(answer.json()["label"])
            await client.put("/documents/0", json={"n": n}, params={"if_label": "none"})
        labels.append((await client.delete("/documents/1")).json()["label"])
        found = await read(client, 7, BEGINNING)
        assert [id for _, id, _ in found] == labels
        assert [data for *_, data in found] == [
            {"id": str(n % 2), "document": {"n": n}, "label": labels[n]} for n in range(6)
        ] + [{"id": "1", "deleted": True, "label": labels[6]}]
        for number, label in enumerate(labels[:-1], 1):
            rest = found[number:]
            assert await read(client, len(rest), label) == rest
            resumed = {"Last-Event-ID": label}
            assert await read(client, len(rest), labels[0], resumed) == rest


async def test_stream_sends_later_changes_and_time_heartbeats(tmp_path: Path) -> None:
    service = IndexBackend(tmp_path)
    async with served(service, HttpSettings(heartbeat_s=0.05)) as client:
        await client.put("/documents/1", json={})
        async with client.stream("GET", "/changes") as answer:
            stream = events(answer)
            name, id, data = await anext(stream)
            assert (name, data) == ("time", {"at": id})
            label = (await client.put("/documents/2", json={})).json()["label"]
            received = [await anext(stream)]
            while received[-1][0]:
                received.append(await anext(stream))
            assert received[-1] == ("", label, {"id": "2", "document": {}, "label": label})
            later = await anext(stream)
            assert later[0] == "time"
            assert later[1] >= label


async def test_stalled_reader_is_disconnected_without_affecting_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    service = IndexBackend(tmp_path)
    async with served(service, unread_s=0.5) as client:
        url = client.base_url
        reader, writer = await asyncio.open_connection(url.host, url.port, limit=1000)
        writer.write(b"GET /changes?from=00000000000000 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        text = "a" * 500_000
        for n in range(40):
            await client.put(f"/documents/{n}", json={"text": text})
        found = await read(client, 40, BEGINNING)
        assert [data["id"] for *_, data in found] == [str(n) for n in range(40)]
        figure = "driftline_http_open_requests"
        while True:
            metrics = (await client.get("/metrics")).text
            (line,) = [each for each in metrics.splitlines() if each.startswith(figure)]
            if float(line.split()[1]) == 1:  # only this request
                break
        received = 0
        try:
            while data := await reader.read(1 << 20):
                received += len(data)
        except ConnectionError:
            pass
        assert received < 40 * len(text)
        writer.close()
    assert "ASGI" not in caplog.text


async def label_of(answer: httpx.Response) -> str:
    assert answer.status_code == 200, answer.text
    label = answer.json()["label"]
    assert isinstance(label, str)
    return label


async def read_watch(client: httpx.AsyncClient, count: int, since: str) -> list[Event]:
    """Return the first events of a watch."""
    return await read(client, count, since, path="/watches/w%2F1/events")


async def test_watch_events_arrive_once_in_order_from_any_label(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "EVENTS_PER_ANSWER", 2)

    async with served(IndexBackend(tmp_path, shards=3), HttpSettings(heartbeat_s=60)) as client:
        await client.put("/documents/0", json={"title": "tea"})
        since = await label_of(await client.put("/watches/w%2F1", json={"q": "tea -black"}))
        expected: list[tuple[str, str, str]] = []
        for n in range(12):
            path, there = f"/documents/{n % 6}", n < 6
            title = {"title": "green tea" if there else "black tea"}
            label = await label_of(await client.put(path, json=title))
            if n:  # document 0 matched before the watch existed
                expected.append((label, str(n % 6), "entered" if there else "left"))
        await client.put("/documents/9", json={"title": "coffee"})
        expected_events = [
            ("", label, {"watch": "w/1", "id": id, "event": change, "label": label})
            for label, id, change in expected
        ]
        assert await read_watch(client, 11, since) == expected_events
        for number, (label, _, _) in enumerate(expected[:-1], 1):
            rest = expected_events[number:]
            assert await read_watch(client, len(rest), label) == rest

        # An open stream also receives later events.
        open_stream = asyncio.ensure_future(read_watch(client, 12, since))
        label = await label_of(await client.put("/documents/9", json={"text": "tea"}))
        received = await open_stream
        assert received[:11] == expected_events
        assert received[11][1:] == (
            label,
            {"watch": "w/1", "id": "9", "event": "entered", "label": label},
        )


async def test_watches_are_put_shown_and_removed(tmp_path: Path) -> None:
    async with client_of(IndexBackend(tmp_path)) as client:
        labels = {
            id: await label_of(await client.put(f"/watches/{id}", json={"q": f"tea {id}"}))
            for id in ("b", "a", "c")
        }
        shown = (await client.get("/watches/a")).json()
        assert shown == {"id": "a", "q": "tea a", "label": labels["a"]}
        listed = (await client.get("/watches?limit=2")).json()
        assert (listed["total"], [each["id"] for each in listed["watches"]]) == (3, ["a", "b"])
        rest = (await client.get("/watches?start_after=b")).json()["watches"]
        assert [each["id"] for each in rest] == ["c"]
        await client.delete("/watches/a", params={"wait": "visible"})
        assert (await client.get("/watches/a")).status_code == 404
        assert (await client.get("/watches/a/events")).status_code == 404


async def test_invalid_watch_is_not_written_to_the_log(tmp_path: Path) -> None:
    cases = (
        ("/watches/1", b'{"q": "titel:tea"}', "query", "titel"),
        ("/watches/1", b'{"q": "tea", "more": 1}', "invalid", "QUERY"),
        ("/watches/1", b'{"q": "\\ud800"}', "query", "unpaired surrogate"),
        ("/watches/1", b"[", "invalid", "not valid JSON"),
        ("/watches/a%00", b'{"q": "tea"}', "invalid", "control character"),
    )

    service = IndexBackend(tmp_path)
    async with client_of(service) as client:
        for path, body, code, message in cases:
            answer = await client.put(path, content=body)
            assert answer.status_code == 400
            assert answer.json()["error"]["code"] == code
            assert message in answer.json()["error"]["message"]
        assert service.time == 1


async def test_watch_events_are_sent_up_to_the_applied_time_of_shards(tmp_path: Path) -> None:
    service = IndexBackend(tmp_path)
    async with served(service, HttpSettings(timeout_s=0.05)) as client:
        watch = (await client.put("/watches/w", json={"q": "tea"})).json()
        service.views_lag = True
        written = [
            (await client.put(f"/documents/{n}", json={"title": "tea"})).json() for n in range(3)
        ]
        await service.apply(service.time - 10)
        found = await read(client, 2, watch["label"], path="/watches/w/events")
        assert [id for _, id, _ in found] == [each["label"] for each in written[:2]]
