"""The head of a request is bounded, however it comes; bodies, and later requests, are not."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send

from driftline.engine.events import Trouble
from driftline.serve.gateway import heads
from driftline.serve.gateway.heads import HEAD_BYTES_MAX, BoundedHttp, InOne

BEGINNING = b"POST / HTTP/1.1\r\nhost: here\r\n"


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers with the number of bytes of the body."""
    size, more = 0, True
    while more:
        message = await receive()
        size, more = size + len(message.get("body", b"")), message.get("more_body", False)
    headers = [(b"content-length", str(len(str(size))).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": str(size).encode()})


@contextmanager
def _nothing() -> Iterator[None]:
    yield


async def asked(*requests: list[bytes]) -> list[bytes]:
    """The answers to requests on one connection, each of which comes in pieces."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        config = uvicorn.Config(echo, http=BoundedHttp, log_level="error", lifespan="off")
        server = uvicorn.Server(config)
        server.capture_signals = _nothing  # type: ignore[method-assign]  # those of pytest
        running = asyncio.ensure_future(server.serve([listening]))
        port = listening.getsockname()[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        answers = []
        try:
            for pieces in requests:
                answer = asyncio.ensure_future(reader.readuntil(b"\r\n\r\n"))
                with suppress(ConnectionError):  # it was refused
                    for piece in pieces:
                        writer.write(piece)
                        await writer.drain()
                        await asyncio.sleep(0)  # the server, in the same loop, reads the piece
                head = await asyncio.wait_for(answer, 20)
                size = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
                answers.append(head.split(b"\r\n")[0] + b" " + await reader.readexactly(size))
        finally:
            writer.close()
            server.should_exit = True
            await running
        return answers


@pytest.mark.parametrize(
    "piece", [b"x" * 4096, b"name: value\r\n" * 300], ids=["one header", "many"]
)
def test_an_endless_head_is_refused(piece: bytes) -> None:
    first = BEGINNING + (b"endless: " if b":" not in piece else b"")
    endless = [first, *[piece] * (8 * HEAD_BYTES_MAX // len(piece))]
    [answer] = asyncio.run(asked(endless))
    status, _, text = answer.partition(b" {")
    assert status == b"HTTP/1.1 431 Request Header Fields Too Large"
    assert json.loads(b"{" + text)["error"]["code"] == "large"


def test_a_body_of_any_size_and_many_requests_pass() -> None:
    body = b"b" * (4 * HEAD_BYTES_MAX)
    large = [BEGINNING + b"content-length: %d\r\n\r\n" % len(body), *[body[:4096]] * 64]
    small = [BEGINNING + b"a: " + b"a" * 30_000 + b"\r\n", b"content-length: 0\r\n\r\n"]
    answers = asyncio.run(asked(large, *[small] * 8))
    assert answers == [b"HTTP/1.1 200 OK %d" % len(body), *[b"HTTP/1.1 200 OK 0"] * 8]


@pytest.mark.parametrize(
    ("sent", "told"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00", "127.0.0.1 has sent what is no HTTP: it is TLS, which"),
        (b"no HTTP at all\r\n\r\n", "127.0.0.1 has sent what is no HTTP"),
    ],
)
def test_what_is_no_http_is_refused_as_json_and_told_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, sent: bytes, told: str
) -> None:
    monkeypatch.setattr(heads, "_no_http", Trouble("no-http"))
    for _ in range(5):
        [answer] = asyncio.run(asked([sent]))
        status, _, text = answer.partition(b" {")
        assert status == b"HTTP/1.1 400 Bad Request"
        assert json.loads(b"{" + text)["error"]["code"] == "invalid"
    [line] = caplog.messages
    assert line.startswith(told)


class Written(asyncio.Transport):
    """Notes what is written, and that it is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[bytes] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.said.append(bytes(data))

    def is_closing(self) -> bool:
        return b"closed" in self.said

    def close(self) -> None:
        self.said.append(b"closed")


def test_what_is_written_at_once_is_sent_at_once() -> None:
    async def write() -> list[bytes]:
        there = Written()
        transport = InOne(there)
        transport.write(b"head ")
        transport.write(b"body")
        assert not there.said
        await asyncio.sleep(0)
        transport.write(b"more")
        await asyncio.sleep(0)
        transport.write(b"the end")
        transport.close()
        await asyncio.sleep(0)
        return there.said

    assert asyncio.run(write()) == [b"head body", b"more", b"the end", b"closed"]
