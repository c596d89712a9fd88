"""Documents over HTTP: writes and reads, conditions, keys, rejected requests, and bulks."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from gzip import compress
from pathlib import Path

import httpx
import pytest

from driftline.index.http import writing
from driftline.serve.errors import ApiError
from driftline.serve.http.operations import HttpSettings
from tests.index.http.service import IndexBackend, client_of, served

TEA = {"title": "Tea", "text": "Tea is made of leaves.", "shelf": 7}


async def test_document_is_written_read_replaced_and_deleted(tmp_path: Path) -> None:
    async with client_of(IndexBackend(tmp_path)) as client:
        first = (await client.put("/documents/1", json=TEA)).json()
        second = (await client.put("/documents/1", json={"title": "Coffee"})).json()
        gone = (await client.delete("/documents/1")).json()
        assert first["id"] == "1"
        assert first["label"] < second["label"] < gone["label"]
        as_of_first = await client.get("/documents/1", params={"at": first["label"]})
        assert as_of_first.json() == {
            "id": "1",
            "label": first["label"],
            "at": first["label"],
            "document": TEA,
        }
        found = (await client.get("/documents/1", params={"at": second["label"]})).json()
        assert found["document"] == {"title": "Coffee"}
        assert found["label"] == second["label"]
        for query in ({}, {"after": gone["label"]}, {"at": gone["label"]}):
            answer = await client.get("/documents/1", params=query)
            assert answer.status_code == 404
            assert answer.json()["error"]["code"] == "absent"


async def test_response_waits_until_the_write_is_durable_or_visible(
    tmp_path: Path,
) -> None:
    service = IndexBackend(tmp_path)
    service.holds_outputs = True
    async with client_of(service, HttpSettings(timeout_s=0.2)) as client:
        label = (await client.put("/documents/1", json=TEA)).json()["label"]
        assert (await client.get("/documents/1")).status_code == 404
        assert (await client.get("/documents/1", params={"after": label})).status_code == 503
        late = await client.put("/documents/1", json=TEA, params={"wait": "visible"})
        assert late.status_code == 503
    async with client_of(service) as client:
        waiting = asyncio.ensure_future(
            client.put("/documents/2", json=TEA, params={"wait": "visible"})
        )
        reading = asyncio.ensure_future(client.get("/documents/1", params={"after": label}))
        done, _ = await asyncio.wait((waiting, reading), timeout=0.1)
        assert not done
        await service.release_outputs()
        assert (await waiting).status_code == (await reading).status_code == 200


BAD_DOCUMENTS = (
    (b"", 400, "not valid JSON"),
    (b"[1]", 400, "not a document"),
    (b'{"title": NaN}', 400, "NaN"),
    (b'{"n": 1e999}', 400, "too large for a float"),
    (b'{"title": 1}', 400, "'title'"),
    (b'{"title": "a", "title": "b"}', 400, "twice"),
    (b'{"\\ud800": 1}', 400, "unpaired surrogate"),
    (b'{"title": "\xff"}', 400, "UTF-8"),
    (b'{"id": "2"}', 400, "id is given beside the document"),
    (b'{"n": 99999999999999999999}', 400, "64 bits"),
    (b'{"n": ' + b"[" * 100_000 + b"}", 400, "nested"),
    (b'{"text": "' + b"a" * (1 << 20) + b'"}', 413, "bytes"),
)
"""(body of the request, status, text of the error)"""


async def test_invalid_document_is_not_written_to_the_log(tmp_path: Path) -> None:
    service = IndexBackend(tmp_path)
    async with client_of(service) as client:
        for body, status, says in BAD_DOCUMENTS:
            answer = await client.put("/documents/1", content=body)
            assert answer.status_code == status, body[:40]
            assert says in answer.json()["error"]["message"]
            assert service.time == 1


BAD_REQUESTS = (
    ("GET", "/documents/1?att=5", 400, "did you mean 'at'"),
    ("GET", "/documents/1?at=5", 400, "is not a label"),
    ("GET", "/documents/1?at=00000000000000&at=00000000000000", 400, "twice"),
    ("GET", "/documents/1?at=%FF", 400, "UTF-8"),
    ("GET", "/documents/%FF", 400, "UTF-8"),
    ("DELETE", "/documents/a%0A", 400, "control character"),
    ("DELETE", "/documents/" + "%C3%A4" * 300, 400, "600 bytes"),
    ("DELETE", "/documents/1?if_label=00000000000000", 400, "none"),
    ("DELETE", "/documents/1?wait=long", 400, "durable or visible"),
    ("POST", "/documents:bulk?key=", 400, "leave `key` out"),
    ("POST", "/documents/1", 405, "GET, PUT, DELETE"),
    ("GET", "/documents/", 404, "no document"),
    ("GET", "/nothing", 404, "openapi"),
    ("GET", "/collections/documens/count?q=a", 404, "did you mean 'documents'"),
    ("GET", "/search", 400, "q is missing"),
    ("GET", "/search?q=" + "a" * 5000, 400, "4096"),
    ("GET", "/search?q=(a", 400, "a ) is missing"),
    ("GET", "/search?q=a&limit=0", 400, "1 to 1000"),
    ("GET", "/search?q=a&limit=500", 400, "snippets=0"),
    ("GET", "/search?q=a&sort=title", 400, "title"),
    ("GET", "/search?q=a&cursor=abc", 400, "cursor"),
)
"""(request, status, text of the error)"""


async def test_bad_requests_get_a_status_and_message(tmp_path: Path) -> None:
    async with client_of(IndexBackend(tmp_path)) as client:
        for method, path, status, says in BAD_REQUESTS:
            answer = await client.request(method, path)
            assert answer.status_code == status, answer.text
            assert says in answer.json()["error"]["message"]


async def test_rejected_write_gets_its_status_and_code(tmp_path: Path) -> None:
    cases = ("busy", 429), ("unavailable", 503), ("full", 507), ("invalid", 400)

    service = IndexBackend(tmp_path)
    async with client_of(service) as client:
        for code, status in cases:
            service.write_results.append(ApiError(code, "not now"))
            answer = await client.put("/documents/1", json=TEA)
            assert answer.status_code == status
            assert answer.json() == {"error": {"code": code, "message": "not now"}}
            assert ("retry-after" in answer.headers) == (status in (429, 503))


async def test_label_before_retention_gets_410_with_the_oldest_label(tmp_path: Path) -> None:
    service = IndexBackend(tmp_path)
    async with client_of(service) as client:
        labels = [(await client.put("/documents/1", json=TEA)).json()["label"] for _ in range(3)]
        service.forget_before(21)
        for path in ("/documents/1?at=", "/search?q=tea&at=", "/changes?from="):
            answer = await client.get(path + labels[0])
            assert answer.status_code == 410
            assert answer.json()["error"]["oldest"] == labels[1]
        assert (await client.get("/documents/1?at=" + labels[1])).status_code == 200


def lines_of(*lines: object) -> bytes:
    return b"".join(
        (line if isinstance(line, bytes) else json.dumps(line).encode()) + b"\n" for line in lines
    )


async def test_bulk_reports_invalid_lines_and_writes_the_others(tmp_path: Path) -> None:
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
    )

    service = IndexBackend(tmp_path)
    async with client_of(service, HttpSettings(body_bytes_max=1000)) as client:
        answer = await client.post("/documents:bulk", content=body[:-1])
        found = [json.loads(line) for line in answer.text.splitlines()]
        bad = {each["line"]: each["error"]["code"] for each in found if "error" in each}
        assert bad == dict.fromkeys((2, 3, 4, 7, 8, 14), "invalid") | {9: "large"}
        labels = [each["label"] for each in found if "label" in each]
        ids = [each["id"] for each in found if "label" in each]
        assert ids == ["1", "1", "5", "5", "none", "6"]
        assert labels == sorted(labels)
        hits = (await client.get("/search", params={"q": "tea"})).json()["hits"]
        assert [hit["id"] for hit in hits] == ["1"]
        assert hits[0]["label"] == labels[1]


async def test_bulk_answers_lines_before_the_body_is_complete(tmp_path: Path) -> None:
    async with served(IndexBackend(tmp_path)) as client:
        url = client.base_url
        reader, writer = await asyncio.open_connection(url.host, url.port)
        writer.write(b"POST /documents:bulk HTTP/1.1\r\nHost: localhost\r\n")
        writer.write(b"Transfer-Encoding: chunked\r\n\r\n")
        first = lines_of({"id": "1"}, {"id": "2"}) + b'{"id'
        writer.write(b"%x\r\n%s\r\n" % (len(first), first))
        got = b""
        while got.count(b'"label"') < 2:
            got += await asyncio.wait_for(reader.read(1000), 10)
        rest = b'": "3"}'
        writer.write(b"%x\r\n%s\r\n0\r\n\r\n" % (len(rest), rest))
        while not got.endswith(b"0\r\n\r\n"):
            got += await asyncio.wait_for(reader.read(1000), 10)
        assert got.count(b'"label"') == 3
        writer.close()


async def test_bulk_delays_answers_while_the_client_is_sending(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a client may read only at the end, and unread answers would stall the connection."""
    monkeypatch.setattr(writing, "SEND_AFTER_S", 5.0)
    service = IndexBackend(tmp_path)
    async with served(service) as client:
        url = client.base_url
        reader, writer = await asyncio.open_connection(url.host, url.port)
        body = lines_of(*({"id": str(n)} for n in range(40)))
        head = f"POST /documents:bulk HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}"
        writer.write(f"{head}\r\n\r\n".encode())
        for line in body.splitlines(keepends=True)[:-1]:
            writer.write(line)
            await asyncio.sleep(0)
        got = b""
        while not got.endswith(b"\r\n\r\n"):
            got += await asyncio.wait_for(reader.read(1000), 10)
        assert b"label" not in got
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.read(1000), 0.2)
        writer.write(body.splitlines(keepends=True)[-1])
        while not got.endswith(b"0\r\n\r\n"):
            got += await asyncio.wait_for(reader.read(1000), 10)
        assert got.count(b'"label"') == 40
        writer.close()


async def test_bulk_pipelines_writes_and_keeps_the_order_per_document(
    tmp_path: Path,
) -> None:
    body = lines_of(*({"id": str(n % 7), "n": n} for n in range(200)))

    service = IndexBackend(tmp_path)
    service.write_loop_passes = 20  # a write takes longer than starting all writes of a window
    async with client_of(service, HttpSettings(window=5)) as client:
        answer = await client.post("/documents:bulk", content=body, params={"wait": "visible"})
        found = [json.loads(line) for line in answer.text.splitlines()]
        assert [each["id"] for each in found] == [str(n % 7) for n in range(200)]
        assert service.concurrent_writes_max == 7, (
            "5 in the window, 1 awaited, 1 ahead of the window"
        )
        for id in range(7):
            document = (await client.get(f"/documents/{id}")).json()["document"]
            assert document == {"n": max(n for n in range(200) if n % 7 == id)}


async def test_last_label_of_a_bulk_is_the_largest_if_an_id_occurs_twice(tmp_path: Path) -> None:
    service = IndexBackend(tmp_path)
    service.write_loop_passes = 5
    async with client_of(service) as client:
        body = lines_of({"id": "1"}, {"id": "1"}, {"id": "2"})
        answer = await client.post("/documents:bulk", content=body)
        labels = [json.loads(line)["label"] for line in answer.text.splitlines()]
        assert labels == sorted(labels)


async def test_stalled_bulk_ends_with_a_slow_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with served(IndexBackend(tmp_path), HttpSettings(idle_s=0.1)) as client:

        async def slow() -> AsyncIterator[bytes]:
            yield lines_of({"id": "1"})
            await asyncio.sleep(1)
            yield lines_of({"id": "2"})

        answer = await client.post("/documents:bulk", content=slow())
        found = [json.loads(line) for line in answer.text.splitlines()]
        assert [each.get("id") for each in found] == ["1", None]
        assert found[1]["error"]["code"] == "slow"
    assert "body of a request arrived too slowly" in caplog.text


async def test_bulk_cut_by_shutdown_ends_with_the_line_to_resume_at(
    tmp_path: Path,
) -> None:
    async with served(IndexBackend(tmp_path)) as client:
        url = client.base_url
        reader, writer = await asyncio.open_connection(url.host, url.port)
        head = b"POST /documents:bulk HTTP/1.1\r\nHost: localhost\r\n"
        head += b"Content-Length: 100000\r\n\r\n"
        writer.write(head + lines_of({"id": "1"}, {"id": "2"}))
        got = b""
        while got.count(b'"label"') < 2:
            got += await asyncio.wait_for(reader.read(1000), 10)
    got += await asyncio.wait_for(reader.read(), 10)
    assert got.endswith(b"\r\n0\r\n\r\n"), "the response is incomplete"
    last = json.loads(got.split(b"\r\n")[-4])
    assert last["line"] == 3
    assert last["error"]["code"] == "unavailable"
    assert "send them again" in last["error"]["message"]
    writer.close()


async def test_gzip_bodies_are_decompressed_and_other_encodings_refused(tmp_path: Path) -> None:
    body = lines_of(*({"id": str(n), "title": "tea"} for n in range(50)))
    gzip = {"content-encoding": "gzip"}
    async with client_of(IndexBackend(tmp_path), HttpSettings(body_bytes_max=100_000)) as client:

        async def bulk(content: bytes, headers: Mapping[str, str] = gzip) -> httpx.Response:
            return await client.post("/documents:bulk", content=content, headers=headers)

        packed = compress(body[:70]) + compress(body[70:])  # two gzip members
        found = [json.loads(line) for line in (await bulk(packed)).text.splitlines()]
        assert [each["id"] for each in found] == [str(n) for n in range(50)]
        assert (await client.get("/count?q=tea")).json()["total"] == 50
        for damaged in (packed[:-20], b"no gzip"):
            last = json.loads((await bulk(damaged)).text.splitlines()[-1])
            assert last["error"]["code"] == "invalid"
        bomb = compress(b" " * 10_000_000)
        assert json.loads((await bulk(bomb)).text)["error"]["code"] == "large"
        put = await client.put("/documents/1", content=bomb, headers=gzip)
        assert put.status_code == 413
        put = await client.put("/documents/1", content=compress(b'{"title": "x"}'), headers=gzip)
        assert put.status_code == 200
        assert (await bulk(body, {"content-encoding": "br"})).status_code == 415
