"""Answers that go on, or are large: sent as fast as the client reads them, and no faster.

Who reads slowly holds back only its own answer. Who does not read at all for a while is cut off.
Who has left ends the generator of an answer, wherever it waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing, suppress
from functools import partial
from typing import TypeVar

from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from driftline.serve.gateway.heads import CONNECTION, Connection
from driftline.serve.http.content.jsons import Json, dumps

T = TypeVar("T")

PART_BYTES = 1 << 16
"""Of a large answer that are sent at once."""


class ClientLeft(Exception):
    """The client does not wait for the answer any more."""


class Sender:
    """Sends the parts of an answer."""

    def __init__(self, scope: Scope, send: Send, idle_s: float) -> None:
        self._scope = scope
        self._send = send
        self._idle_s = idle_s

    async def start(self, media_type: str) -> None:
        """Send the beginning of the answer."""
        headers = {
            "content-type": media_type,
            "cache-control": "no-store",
            "x-accel-buffering": "no",  # a proxy is not to collect it
        }
        pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
        await self._send({"type": "http.response.start", "status": 200, "headers": pairs})

    async def part(self, data: bytes, more: bool = True) -> None:
        """Send a part, when there is room. Raises ClientLeft if there is none for too long."""
        message = {"type": "http.response.body", "body": data, "more_body": more}
        try:
            async with asyncio.timeout(self._idle_s):
                await self._send(message)
        except TimeoutError:
            await self.cut_off()
            raise ClientLeft from None

    async def cut_off(self) -> None:
        """End the connection: what it is sent has no room, so it cannot be told anything."""
        connection_of(self._scope).abort()
        with suppress(asyncio.CancelledError):  # the service ends: nothing is left to be done
            await asyncio.sleep(0.01)  # the server of HTTP hears of it, and complains of nothing


def connection_of(scope: Scope) -> Connection:
    """The connection of a request; of another server than ours, one that is never lost."""
    found = scope.get("state", {}).get(CONNECTION)
    return found if isinstance(found, Connection) else Connection(lambda: None)


class Streamed:
    """An answer whose parts a generator makes, until the client leaves."""

    def __init__(self, parts: AsyncGenerator[bytes, None], media_type: str, idle_s: float) -> None:
        self._parts = parts
        self._media_type = media_type
        self._idle_s = idle_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        sender = Sender(scope, send, self._idle_s)
        await while_there(connection_of(scope), partial(self._sent, sender))

    async def _sent(self, sender: Sender) -> None:
        async with aclosing(self._parts) as parts:
            await sender.start(self._media_type)
            await sender.part(b"")
            async for data in parts:
                await sender.part(data)
        await sender.part(b"", more=False)


class InParts:
    """A large answer, which is sent in parts."""

    def __init__(self, answer: Response, idle_s: float) -> None:
        self._answer = answer
        self._idle_s = idle_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        sender = Sender(scope, send, self._idle_s)

        async def in_parts(message: Message) -> None:
            data = message.get("body", b"")
            if not data:
                await send(message)
            for at in range(0, len(data), PART_BYTES):
                await sender.part(data[at : at + PART_BYTES], at + PART_BYTES < len(data))
                await asyncio.sleep(0)  # the part leaves; then it is seen whether there is room

        await self._answer(scope, receive, in_parts)


async def while_there(connection: Connection, answer: Callable[[], Awaitable[T]]) -> T:
    """The answer, which is cancelled when the client leaves. Raises ClientLeft."""
    task = asyncio.current_task()
    assert task is not None
    if not connection.hold(task):
        raise ClientLeft
    try:
        return await answer()
    except asyncio.CancelledError:
        if not connection.is_lost:
            raise
        task.uncancel()
        raise ClientLeft from None
    finally:
        connection.release(task)


def event(data: Mapping[str, Json], id: str = "", name: str = "") -> bytes:
    """A server-sent event."""
    lines = [b"event: " + name.encode() + b"\n"] if name else []
    if id:
        lines.append(b"id: " + id.encode() + b"\n")
    return b"".join((*lines, b"data: ", dumps(data), b"\n\n"))
