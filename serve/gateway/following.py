"""Following the journal from an asyncio loop."""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import suppress

from driftline.engine.errors import Unavailable
from driftline.serve.errors import NoLongerRetained
from driftline.serve.gateway.line import LoopLine
from driftline.serve.gateway.turns import PIECE_BYTES, PIECE_ITEMS, Turns, pieces
from driftline.serve.hosting.feeds import (
    FOLLOW_EVERY_S,
    NOBODY,
    ROOM_BYTES,
    Following,
    Lost,
    Stored,
)
from driftline.serve.journal import Span


async def follow(
    path: str,
    since: int,
    name: str = "gateway",
    over: asyncio.Event | None = None,
    room: int = ROOM_BYTES,
    turns: Turns | None = None,
) -> AsyncIterator[Span]:
    """The spans of a journal from a time on, without an end; those that are empty, too.

    One that ends where it begins says that there is no more for now. Whoever takes them slowly is
    given them slowly: so many bytes are under way as there is `room`. If the journal's process is
    started again, they go on. They end with `over`. With `turns` it is one of many: there are small
    spans, and a turn is taken for each.
    Raises NoLongerRetained, Unavailable if they cannot be read.
    """
    following = Following(f"{name}-{secrets.token_hex(4)}", secrets.token_hex(8), since, room)
    came = _Came()

    def say_so() -> None:
        line.send(following.follow(NOBODY))

    line = LoopLine(path, came.take, say_so)
    tasks: list[asyncio.Task[None]] = [asyncio.create_task(_again_and_again(say_so))]
    if over is not None:
        tasks.append(asyncio.create_task(_end(came, over)))
    try:
        while (data := await came.next()) is not None:
            if turns is not None and len(data) > PIECE_BYTES:
                await turns.take()
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
                if turns is None:
                    yield span
                else:
                    for piece in pieces(span):
                        if len(span.items) > PIECE_ITEMS:
                            await turns.take()
                        yield piece
            if credit := following.credit():
                line.send(credit)
    finally:
        for task in tasks:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        line.close()


class _Came:
    """Messages that nobody has taken yet: as many as the journal knows that there is room for."""

    def __init__(self) -> None:
        self._messages: deque[bytes] = deque()
        self._over = False
        self._waiting: asyncio.Future[None] | None = None

    def take(self, data: bytes) -> None:
        """A message has come."""
        self._messages.append(data)
        self._wake()

    def end(self) -> None:
        """Nothing more is wanted."""
        self._over = True
        self._wake()

    async def next(self) -> bytes | None:
        """The next message; None once nothing more is wanted."""
        while not self._over and not self._messages:
            self._waiting = asyncio.get_running_loop().create_future()
            await self._waiting
        return None if self._over else self._messages.popleft()

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)


async def _end(came: _Came, over: asyncio.Event) -> None:
    await over.wait()
    came.end()


async def _again_and_again(say_so: Callable[[], None]) -> None:
    while True:
        await asyncio.sleep(FOLLOW_EVERY_S)
        say_so()
