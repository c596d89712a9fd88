"""Bulks: answers while lines still come, in order, bounded; bad lines are reported."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from time import monotonic

from driftline.serve.errors import Refused
from driftline.serve.http.operations import Settings
from tests.index.http.service import Service, client_of, served


def lines_of(*lines: object) -> bytes:
    return b"".join(
        (line if isinstance(line, bytes) else json.dumps(line).encode()) + b"\n" for line in lines
    )


def test_bad_lines_are_reported_and_the_others_taken(tmp_path: Path) -> None:
    body = lines_of(
        {"id": "1", "title": "tea"},
        b"{",
        {"id": "2", "title": 5},
        {"title": "no id"},
        b"",
        {"id": "1", "title": "green tea"},
        {"id": 3},
        {"delete": "1", "title": "x"},
        b'{"id": "4", "text": "' + b"a" * 3000 + b'"}',
        {"id": "5", "title": "black tea"},
        {"delete": "5"},
        {"delete": "none"},
        {"id": "6", "delete": "7"},
        b'{"id": "\\ud800"}',
        b'{"delete": "\\ud800"}',
        {"id": "7"},
    )

    async def drive() -> None:
        service = Service(tmp_path)
        async with client_of(service, Settings(body_bytes_max=1000)) as client:
            answer = await client.post("/documents:bulk", content=body[:-1])
            found = [json.loads(line) for line in answer.text.splitlines()]
            bad = {each["line"]: each["error"]["code"] for each in found if "error" in each}
            assert bad == dict.fromkeys((2, 3, 4, 7, 8, 14, 15), "invalid") | {9: "large"}
            labels = [each["label"] for each in found if "label" in each]
            assert [each["id"] for each in found if "label" in each] == [
                "1",
                "1",
                "5",
                "5",
                "none",
                "6",
                "7",
            ]
            assert labels == sorted(labels)
            hits = (await client.get("/search", params={"q": "tea"})).json()["hits"]
            assert [hit["id"] for hit in hits] == ["1"]
            assert hits[0]["label"] == labels[1]

    asyncio.run(drive())


def test_answers_come_while_lines_still_come(tmp_path: Path) -> None:
    async def drive() -> None:
        async with served(Service(tmp_path)) as client:
            go_on = asyncio.Event()

            async def lines() -> AsyncIterator[bytes]:
                yield lines_of({"id": "1"}, {"id": "2"}) + b'{"id'
                await go_on.wait()
                yield b'": "3"}'

            url, began = client.base_url, monotonic()
            reader, writer = await asyncio.open_connection(url.host, url.port)
            writer.write(b"POST /documents:bulk HTTP/1.1\r\nHost: localhost\r\n")
            writer.write(b"Transfer-Encoding: chunked\r\n\r\n")
            parts = lines()
            first = await anext(parts)
            writer.write(b"%x\r\n%s\r\n" % (len(first), first))
            got = b""
            while got.count(b'"label"') < 2:
                got += await asyncio.wait_for(reader.read(1000), 10)
            await asyncio.sleep(0.1)  # what is measured lasts until the end of the answer
            go_on.set()
            rest = await anext(parts)
            writer.write(b"%x\r\n%s\r\n0\r\n\r\n" % (len(rest), rest))
            while not got.endswith(b"0\r\n\r\n"):
                got += await asyncio.wait_for(reader.read(1000), 10)
            assert got.count(b'"label"') == 3
            writer.close()
            lasted = monotonic() - began
            metrics = (await client.get("/metrics")).text
            [took] = re.findall(r'_seconds_sum\{operation="bulk"\} (.*)', metrics)
            assert 0.1 < float(took) <= lasted

    asyncio.run(drive())


def test_writes_are_pipelined_within_a_window_and_those_of_a_document_are_in_order(
    tmp_path: Path,
) -> None:
    body = lines_of(*({"id": str(n % 7), "n": n} for n in range(200)))

    async def drive() -> None:
        service = Service(tmp_path)
        service.turns = 20  # longer than it takes to begin the writes of a window
        for refused in (None, Refused("busy", "full"), None, None, Refused("busy", "full")):
            service.refuses.append(refused)
        async with client_of(service, Settings(window=5)) as client:
            answer = await client.post("/documents:bulk", content=body, params={"wait": "visible"})
            found = [json.loads(line) for line in answer.text.splitlines()]
            assert [each["id"] for each in found] == [str(n % 7) for n in range(200)]
            assert service.writes_at_once == 7, "the window, one awaited, one before the window"
            for id in range(7):
                document = (await client.get(f"/documents/{id}")).json()["document"]
                assert document == {"n": max(n for n in range(200) if n % 7 == id)}

    asyncio.run(drive())


def test_a_bulk_with_a_key_can_be_sent_again(tmp_path: Path) -> None:
    body = lines_of({"id": "1", "n": 1}, {"delete": "2"}, {"id": "1", "n": 2})

    async def drive() -> None:
        async with client_of(Service(tmp_path)) as client:
            first = await client.post("/documents:bulk", content=body, params={"key": "k"})
            again = await client.post("/documents:bulk", content=body, params={"key": "k"})
            told = [json.loads(line) for line in again.text.splitlines()]
            assert [each["label"] for each in told] == [
                json.loads(line)["label"] for line in first.text.splitlines()
            ]
            assert all(each["repeated"] for each in told)

    asyncio.run(drive())


def test_a_client_that_sends_all_before_it_reads_is_served(tmp_path: Path) -> None:
    body = lines_of(*({"id": str(n), "title": "tea " * 20} for n in range(2_000)))

    async def drive() -> None:
        async with served(Service(tmp_path)) as client:
            answer = await client.post("/documents:bulk", content=body)
            assert len(answer.text.splitlines()) == 2_000
            found = await client.get("/count", params={"q": "tea"})
            assert found.json()["total"] == 2_000

    asyncio.run(drive())


def test_a_client_that_leaves_ends_its_bulk(tmp_path: Path) -> None:
    async def drive() -> None:
        service = Service(tmp_path)
        async with served(service) as client:
            url = client.base_url
            _, writer = await asyncio.open_connection(url.host, url.port)
            head = b"POST /documents:bulk HTTP/1.1\r\nHost: localhost\r\n"
            head += b"Content-Length: 100000\r\n\r\n"
            writer.write(head + lines_of({"id": "1"}))
            while service.time == 1:
                await asyncio.sleep(0.01)
            writer.transport.abort()
            figure = "driftline_http_open_requests"
            while True:
                metrics = (await client.get("/metrics")).text
                (line,) = [each for each in metrics.splitlines() if each.startswith(figure)]
                if float(line.split()[1]) == 1:  # this one
                    break

    asyncio.run(drive())


def test_a_bulk_of_which_nothing_comes_ends_with_a_word(tmp_path: Path) -> None:
    async def drive() -> None:
        async with served(Service(tmp_path), Settings(idle_s=0.1)) as client:

            async def slow() -> AsyncIterator[bytes]:
                yield lines_of({"id": "1"})
                await asyncio.sleep(1)
                yield lines_of({"id": "2"})

            answer = await client.post("/documents:bulk", content=slow())
            found = [json.loads(line) for line in answer.text.splitlines()]
            assert [each.get("id") for each in found] == ["1", None]
            assert found[1]["error"]["code"] == "slow"

    asyncio.run(drive())


def test_a_bulk_in_the_middle_of_which_the_service_ends_is_told_where_to_go_on(
    tmp_path: Path,
) -> None:
    async def drive() -> None:
        async with served(Service(tmp_path)) as client:
            url = client.base_url
            reader, writer = await asyncio.open_connection(url.host, url.port)
            head = b"POST /documents:bulk HTTP/1.1\r\nHost: localhost\r\n"
            head += b"Content-Length: 100000\r\n\r\n"
            writer.write(head + lines_of({"id": "1"}, {"id": "2"}))
            got = b""
            while got.count(b'"label"') < 2:
                got += await asyncio.wait_for(reader.read(1000), 10)
        got += await asyncio.wait_for(reader.read(), 10)
        assert got.endswith(b"\r\n0\r\n\r\n"), "a whole answer"
        last = json.loads(got.split(b"\r\n")[-4])
        assert last["line"] == 3
        assert last["error"]["code"] == "unavailable"
        assert "send them again" in last["error"]["message"]
        writer.close()

    asyncio.run(drive())
