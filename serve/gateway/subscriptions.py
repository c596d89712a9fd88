"""Subscriptions to the journal from an asyncio loop, with fair scheduling between them."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress

from driftline.engine.errors import Unavailable
from driftline.serve.errors import RetentionExceeded
from driftline.serve.hosting.feeds import (
    FOLLOW_EVERY_S,
    RETAINS_NOTHING,
    WINDOW_BYTES,
    DurableUpTo,
    Subscription,
    Truncated,
)
from driftline.serve.hosting.ipc import IpcClient
from driftline.serve.journal import Span

PIECE_ITEMS = 64
"""Outputs per piece, about 2 ms of work. Outputs of one time stay in one piece."""

SMALL_MESSAGE_BYTES = 1 << 12
"""Messages up to this size are decoded without waiting for a turn."""


class FairScheduler:
    """Fair scheduler of one loop: requests hardly wait while many streams read long histories.

    A stream waits for a turn before each piece of its work. Each pass of the loop grants one turn,
    in FIFO order. So per pass a request waits for one piece, however many streams run.
    """

    def __init__(self) -> None:
        self._lock = asyncio.Lock()

    async def wait_for_turn(self) -> None:
        """Wait for a turn, which lasts until the caller's next await."""
        async with self._lock:
            await asyncio.sleep(0)


async def subscribe(
    path: str,
    since: int,
    name: str = "gateway",
    closing: asyncio.Event | None = None,
    window_bytes: int = WINDOW_BYTES,
    scheduler: FairScheduler | None = None,
) -> AsyncGenerator[Span, None]:
    """Yield the spans of a journal from a time on, without end, including empty spans.

    A span with `since` == `time` is a heartbeat: the journal has no further outputs yet.
    Back-pressure: at most `window_bytes` bytes, plus one span, are in flight. The subscription
    survives restarts of the journal's process, and ends when `closing` is set. If many
    subscriptions share a `scheduler`, each yields small spans and waits for a turn before each
    piece. Raises RetentionExceeded; Unavailable if the journal cannot
    be read.
    """
    subscription = Subscription(
        f"{name}-{secrets.token_hex(4)}", secrets.token_hex(8), since, window_bytes
    )
    messages: asyncio.Queue[bytes | None] = asyncio.Queue()
    """Received messages, bounded by the credit of the journal; None ends the subscription."""

    def renew() -> None:
        client.send(subscription.encode_follow(RETAINS_NOTHING))

    client = IpcClient(path, messages.put_nowait, renew)
    tasks = [asyncio.create_task(_renew_again_and_again(renew))]
    if closing is not None:
        tasks.append(asyncio.create_task(_end(messages, closing)))
    try:
        while (data := await messages.get()) is not None and not (closing and closing.is_set()):
            if scheduler is not None and len(data) > SMALL_MESSAGE_BYTES:
                await scheduler.wait_for_turn()
            heard = subscription.decode(data)
            if isinstance(heard, Truncated):
                if heard.oldest >= 0:
                    raise RetentionExceeded(heard.reason, heard.oldest)
                raise Unavailable(heard.reason)
            if isinstance(heard, DurableUpTo):
                yield Span(since, since, [])
                continue
            # After a restart of the journal, spans may repeat and overlap.
            if heard.time > since:
                items = [item for item in heard.items if item.label[0] >= since]
                span = Span(max(since, heard.since), heard.time, items)
                since = heard.time
                if scheduler is None:
                    yield span
                else:
                    for piece in span.pieces(PIECE_ITEMS):
                        if len(span.items) > PIECE_ITEMS:
                            await scheduler.wait_for_turn()
                        yield piece
            if credit := subscription.encode_credit():
                client.send(credit)
    finally:
        for task in tasks:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        client.close()


async def _end(messages: asyncio.Queue[bytes | None], over: asyncio.Event) -> None:
    await over.wait()
    messages.put_nowait(None)


async def _renew_again_and_again(renew: Callable[[], None]) -> None:
    while True:
        await asyncio.sleep(FOLLOW_EVERY_S)
        renew()
