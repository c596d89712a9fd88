"""Asking one shard of a view from an asyncio loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import count

from driftline.engine.errors import PayloadError
from driftline.serve.errors import Refused
from driftline.serve.gateway.line import LoopLine
from driftline.serve.hosting.asking import Asked, TakenBack, decode_answer, encode_asked
from driftline.serve.views.hosted import Answer, Question

BEYOND_S = 1.0
"""How much longer than the view itself the asker waits: its process may be dead."""


class Asker:
    """Asks the shard of a view at a path, whatever process it is that listens there."""

    def __init__(self, name: str, path: str, heard: Callable[[str], None]) -> None:
        """`heard`: is told the name whenever something has come."""
        self.name = name
        self._heard = heard
        self._numbers = count(1)
        self._asked: dict[int, tuple[asyncio.Future[Answer], bytes]] = {}
        """Number of a question -> who waits for the answer, and the message."""
        self._line = LoopLine(path, self._hear, self._ask_again)

    async def ask(self, question: Question, after: int, within_s: float) -> Answer:
        """The answer. Raises Refused; "unavailable" if none has come in time."""
        number = next(self._numbers)
        try:
            data = encode_asked(Asked(number, question, after, within_s))
        except PayloadError as error:
            raise Refused("invalid", f"the question {error}") from None
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._asked[number] = answer, data
        try:
            self._line.send(data)
            async with asyncio.timeout(within_s + BEYOND_S):
                return await answer
        except TimeoutError:
            text = f"{self.name} does not answer; it may be starting again"
            raise Refused("unavailable", text) from None
        finally:
            self._asked.pop(number, None)
            if not answer.done() or answer.cancelled():
                self._line.send(encode_asked(TakenBack(number)))

    def close(self) -> None:
        """Ask nothing more."""
        self._line.close()

    def _hear(self, data: bytes) -> None:
        self._heard(self.name)
        number, answer = decode_answer(data)
        waiting, _ = self._asked.get(number, (None, b""))
        if waiting is None or waiting.done():
            return
        if isinstance(answer, Refused):
            waiting.set_exception(answer)
        else:
            waiting.set_result(answer)

    def _ask_again(self) -> None:
        """A process of the view can be reached: it may be another one than before."""
        for _, data in list(self._asked.values()):
            self._line.send(data)
