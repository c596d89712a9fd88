"""A line from an asyncio loop to the process that listens at a path, whatever process that is.

Takes: messages to send. Gives: each message that comes, to a function, as soon as it is whole.
Invariants: those of `serve.hosting.lines`. There is a new line soon after one has ended.
Precondition: who listens says nothing before it is told something.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from driftline.engine.errors import MalformedMessage
from driftline.serve.hosting.lines import Frames, framed

CALL_EVERY_S = 0.02
"""How often a process is called that does not listen yet, or not any more."""


class LoopLine(asyncio.Protocol):
    """A line that is made, used and closed in one loop.

    `take`: gets each message; `there`: is called whenever there is a new line, on which nothing was
    said.
    """

    def __init__(self, path: str, take: Callable[[bytes], None], there: Callable[[], None]) -> None:
        self._path = path
        self._take = take
        self._there = there
        self._frames = Frames()
        self._transport: asyncio.Transport | None = None
        self._ended = asyncio.Event()
        self._keeping = asyncio.create_task(self._keep())

    def send(self, data: bytes) -> None:
        """Send a message; it is lost if there is no line."""
        if self._transport is not None:
            with suppress(RuntimeError):  # it has ended, which uvloop tells a moment later
                self._transport.write(framed(data))

    def close(self) -> None:
        """Send and take nothing more."""
        self._keeping.cancel()
        if self._transport is not None:
            self._transport.abort()
            self._transport = None

    async def _keep(self) -> None:
        """Have a line, again and again."""
        loop = asyncio.get_running_loop()
        while True:
            self._ended.clear()
            try:
                transport, _ = await loop.create_unix_connection(lambda: self, self._path)
            except OSError:
                await asyncio.sleep(CALL_EVERY_S)
                continue
            self._transport, self._frames = transport, Frames()
            self._there()
            await self._ended.wait()
            self._transport = None

    def data_received(self, data: bytes) -> None:
        """Something has come."""
        self._frames.add(data)
        try:
            while self._transport is not None and (message := self._frames.next()) is not None:
                self._take(message)
        except MalformedMessage:
            if self._transport is not None:
                self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """The line has ended."""
        self._ended.set()
