"""Turns: any number of streams read long pasts in one loop, and others hardly wait for it.

Who has much to do takes a turn before each piece of it. There is one turn in a pass of the loop, in
the order of asking: so a request waits for one piece at a time, not for one of each stream.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from driftline.serve.journal import Span

PIECE_ITEMS = 64
"""Outputs of a piece: working them off takes some 2 ms; so many of one time are one piece."""

PIECE_BYTES = 1 << 12
"""A message that is shorter is read at once."""


class Turns:
    """The turns in one loop."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()

    async def take(self) -> None:
        """Wait for a turn, which lasts until the caller waits for something."""
        async with self._lock:
            await asyncio.sleep(0)


def pieces(span: Span) -> Iterator[Span]:
    """A span as several that follow each other, none with many more outputs than a piece has.

    >>> from driftline.engine.wire.bundles import Item
    >>> span = Span(3, 400, [Item((time, 0), 0, "") for time in range(10, 140)])
    >>> [(piece.since, piece.time, len(piece.items)) for piece in pieces(span)]
    [(3, 74, 64), (74, 138, 64), (138, 400, 2)]
    """
    since, items, begin = span.since, span.items, 0
    for end in range(1, len(items)):
        time = items[end].label[0]
        if end - begin >= PIECE_ITEMS and time > items[end - 1].label[0]:
            yield Span(since, time, items[begin:end])
            since, begin = time, end
    yield Span(since, span.time, items[begin:])
