"""Questions to views in other processes: as they travel, and their client in an asyncio loop.

A client sends a request (number, question, `after`, how long it waits) or cancels it; it is
answered once, with an answer or a refusal. A question is never lost with a process: when the
process of a view is started again, the client sends again what is not answered.

A view also sends its T to each client whenever it has applied outputs, so a client knows which T
can be read without waiting.
"""

from __future__ import annotations

import asyncio
from itertools import count
from typing import NamedTuple

from driftline.engine.errors import MalformedMessage, PayloadError
from driftline.engine.wire.codec import pack, unpack
from driftline.serve.errors import ApiError
from driftline.serve.hosting.ipc import IpcClient
from driftline.serve.views.hosted import Answer, Question

BEYOND_S = 1.0
"""How much longer than the view itself the client waits: its process may be dead."""

_REQUEST, _CANCEL, _ANSWER, _REFUSAL, _REACHED = range(5)


class Request(NamedTuple):
    """A question; the view answers once it is as of `after`, within so many seconds.

    `asker`: the client for whom it is asked; askers share the time of the view.
    """

    number: int
    question: Question
    after: int
    within_s: float
    asker: str = ""


class Cancel(NamedTuple):
    """Nobody waits for the answer any more."""

    number: int


class ViewTime(NamedTuple):
    """The view has applied all outputs below this T."""

    time: int


def encode_request(request: Request | Cancel) -> bytes:
    """A message to a view. Raises PayloadError if the question cannot travel."""
    if isinstance(request, Cancel):
        return pack((_CANCEL, request.number))
    number, question, *rest = request
    return pack((_REQUEST, number, dict(question), *rest))


def decode_request(data: bytes) -> Request | Cancel:
    """Decode `encode_request`. Raises MalformedMessage."""
    match unpack(data):
        case (
            code,
            int(number),
            dict(question),
            int(after),
            int() | float() as within,
            str(asker),
        ) if code == _REQUEST:
            return Request(number, question, after, within, asker)
        case (code, int(number)) if code == _CANCEL:
            return Cancel(number)
    raise MalformedMessage("not a question")


def encode_reached(time: int) -> bytes:
    """A message of a view: it has applied all outputs below this T."""
    return pack((_REACHED, time))


def encode_answer(number: int, answer: Answer | ApiError) -> bytes:
    """A message of a view. Raises PayloadError if the answer cannot travel."""
    if isinstance(answer, ApiError):
        return pack((_REFUSAL, number, answer.code, str(answer), answer.details))
    return pack((_ANSWER, number, dict(answer)))


def decode_answer(data: bytes) -> tuple[int, Answer | ApiError] | ViewTime:
    """Decode a message of a view: (number of the question, answer), or a T. Raises
    MalformedMessage."""
    match unpack(data):
        case (code, int(time)) if code == _REACHED:
            return ViewTime(time)
        case (code, int(number), dict(answer)) if code == _ANSWER:
            return number, answer
        case (code, int(number), str(kind), str(text), dict(details)) if code == _REFUSAL:
            return number, ApiError(kind, text, details)
    raise MalformedMessage("not an answer")


class ViewClient:
    """Asks the shard of a view at a path, whatever process it is that listens there."""

    def __init__(self, name: str, path: str) -> None:
        self.name = name
        self.time = 0
        """The largest T that the view has sent. A process that starts again from an earlier
        checkpoint does not decrease it, so reads never go back in time."""
        self._numbers = count(1)
        self._waiting: dict[int, tuple[asyncio.Future[Answer], bytes]] = {}
        """Number of a question -> who waits for the answer, and the message."""
        self._client = IpcClient(path, self._hear, self._ask_again)

    async def ask(self, question: Question, after: int, within_s: float, asker: str = "") -> Answer:
        """The answer. Raises Refused; "unavailable" if none has come in time."""
        number = next(self._numbers)
        try:
            data = encode_request(Request(number, question, after, within_s, asker))
        except PayloadError as error:
            raise ApiError("invalid", f"the question {error}") from None
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer, data
        try:
            self._client.send(data)
            async with asyncio.timeout(within_s + BEYOND_S):
                return await answer
        except TimeoutError:
            text = f"{self.name} does not answer; it may be starting again"
            raise ApiError("unavailable", text) from None
        finally:
            self._waiting.pop(number, None)
            if not answer.done() or answer.cancelled():
                self._client.send(encode_request(Cancel(number)))

    def close(self) -> None:
        """Ask nothing more."""
        self._client.close()

    def _hear(self, data: bytes) -> None:
        message = decode_answer(data)
        if isinstance(message, ViewTime):
            self.time = max(self.time, message.time)
            return
        number, answer = message
        waiting, _ = self._waiting.get(number, (None, b""))
        if waiting is None or waiting.done():
            return
        if isinstance(answer, ApiError):
            waiting.set_exception(answer)
        else:
            waiting.set_result(answer)

    def _ask_again(self) -> None:
        """A process of the view can be reached: it may be another one than before."""
        for _, data in list(self._waiting.values()):
            self._client.send(data)
