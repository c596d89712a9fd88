"""Following the journal from an asyncio loop."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Literal

import zmq
import zmq.asyncio

from driftline.engine.errors import Unavailable
from driftline.serve.errors import NoLongerRetained
from driftline.serve.hosting.feeds import FOLLOW_EVERY_S, Following, Lost, Stored
from driftline.serve.journal import Span

NOBODY = 0
"""What a follower needs of the journal that can go on from whatever there is."""


async def follow(
    context: zmq.asyncio.Context,
    address: str,
    since: int,
    name: str = "gateway",
    over: asyncio.Event | None = None,
) -> AsyncIterator[Span]:
    """The spans of a journal from a time on, without an end; those that are empty, too.

    One that ends where it begins says that there is no more for now. Whoever takes them slowly is
    given them slowly. If the journal's process is started again, they go on. They end with `over`.
    Raises NoLongerRetained, Unavailable if they cannot be read.
    """
    following = Following(f"{name}-{secrets.token_hex(4)}", secrets.token_hex(8), since)
    socket = context.socket(zmq.DEALER)
    socket.set_hwm(0)
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.RECONNECT_IVL, 20)
    socket.connect(address)
    saying = asyncio.create_task(_say_so(socket, following))
    ended = None if over is None else asyncio.create_task(over.wait())
    try:
        while True:
            if (data := await _received(socket, ended)) is None:
                return
            heard = following.hear(data)
            if isinstance(heard, Lost):
                if heard.oldest >= 0:
                    raise NoLongerRetained(heard.reason, heard.oldest)
                raise Unavailable(heard.reason)
            if isinstance(heard, Stored):
                yield Span(since, since, [])
                continue
            # The same spans may come once more, and overlap, if the journal was started again.
            if heard.time > since:
                items = [item for item in heard.items if item.label[0] >= since]
                span = Span(max(since, heard.since), heard.time, items)
                since = heard.time
                yield span
            if credit := following.credit():
                await socket.send(credit)
    finally:
        for task in filter(None, (saying, ended)):
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        socket.close()


async def _received(
    socket: zmq.asyncio.Socket, ended: asyncio.Task[Literal[True]] | None
) -> bytes | None:
    """The next message; None once `ended` is done."""
    if ended is None:
        return await socket.recv()
    coming = asyncio.ensure_future(socket.recv())
    try:
        await asyncio.wait((coming, ended), return_when=asyncio.FIRST_COMPLETED)
        return coming.result() if coming.done() else None
    finally:
        coming.cancel()


async def _say_so(socket: zmq.asyncio.Socket, following: Following) -> None:
    while True:
        await socket.send(following.follow(NOBODY))
        await asyncio.sleep(FOLLOW_EVERY_S)
