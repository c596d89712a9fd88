"""Subscriptions of an asyncio process to the journal, with fair scheduling between them."""

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
    FeedEnded,
    Subscription,
)
from driftline.serve.hosting.ipc import IpcClient
from driftline.serve.journal import Span

PIECE_ITEMS = 64
"""Number of outputs per piece of a span, about 2 ms of work. One piece contains all outputs of a
time, so it may be larger."""

SMALL_MESSAGE_BYTES = 1 << 12
"""Messages up to this size are decoded without waiting for a turn."""


class FairScheduler:
    """Scheduler of the streams of one event loop, so that many streams hardly delay requests.

    A stream waits for a turn before each piece of its work. Each pass of the loop grants one turn,
    in FIFO order. So in each pass a request waits for at most one piece, however many streams run.
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
    """Yield the spans of a journal from a time on, until `closing` is set.

    `path`: the socket of the journal's feeds; `name`: the prefix of the follower's name. A span
    with `since` == `time` is a heartbeat: the journal has no further outputs yet. Back-pressure: at
    most `window_bytes` bytes, plus one span, are in flight. The subscription survives restarts of
    the journal's process. Subscriptions that share a `scheduler` split long spans, and wait for a
    turn before each longer piece of work. Raises RetentionExceeded; Unavailable if the journal
    cannot be read.
    """
    subscription = Subscription(
        f"{name}-{secrets.token_hex(4)}", secrets.token_hex(8), since, window_bytes
    )
    messages: asyncio.Queue[bytes | None] = asyncio.Queue()
    """Received messages, bounded by `window_bytes`; None ends the subscription."""

    def send_follow() -> None:
        client.send(subscription.encode_follow(RETAINS_NOTHING))

    client = IpcClient(path, messages.put_nowait, send_follow)
    tasks = [asyncio.create_task(_repeat_follow(send_follow))]
    if closing is not None:
        tasks.append(asyncio.create_task(_end_when_set(closing, messages)))
    try:
        while (data := await messages.get()) is not None and not (closing and closing.is_set()):
            if scheduler is not None and len(data) > SMALL_MESSAGE_BYTES:
                await scheduler.wait_for_turn()
            message = subscription.decode(data)
            if isinstance(message, FeedEnded):
                if message.oldest >= 0:
                    raise RetentionExceeded(message.reason, message.oldest)
                raise Unavailable(message.reason)
            if isinstance(message, DurableUpTo):
                yield Span(since, since, [])
                continue
            # After a restart of the journal, spans may repeat and overlap.
            if message.time > since:
                items = [item for item in message.items if item.label[0] >= since]
                span = Span(max(since, message.since), message.time, items)
                since = message.time
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


async def _end_when_set(closing: asyncio.Event, messages: asyncio.Queue[bytes | None]) -> None:
    await closing.wait()
    messages.put_nowait(None)


async def _repeat_follow(send_follow: Callable[[], None]) -> None:
    while True:
        await asyncio.sleep(FOLLOW_EVERY_S)
        send_follow()
