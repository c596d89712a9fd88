"""Questions to views in other processes: their messages, and the client in an asyncio loop.

A client sends a request (number, question, `after`, timeout) or cancels it; the view replies once,
with an answer or an error. No question is lost with a process: after a restart of the view, the
client resends the unanswered questions.

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
"""Extra timeout of the client beyond that of the view, whose process may be dead."""

_REQUEST, _CANCEL, _ANSWER, _REFUSAL, _REACHED = range(5)


class Request(NamedTuple):
    """A question; the view answers once it has reached `after`, or rejects it after `within_s`.

    `asker`: the client that asks; clients share the time of the view.
    """

    number: int
    question: Question
    after: int
    within_s: float
    asker: str = ""


class Cancel(NamedTuple):
    """The cancellation of a question."""

    number: int


class ViewTime(NamedTuple):
    """The T of a view, which has applied all outputs below it."""

    time: int


def encode_request(request: Request | Cancel) -> bytes:
    """Encode a message to a view. Raises PayloadError for values outside the wire format."""
    if isinstance(request, Cancel):
        return pack((_CANCEL, request.number))
    number, question, *rest = request
    return pack((_REQUEST, number, dict(question), *rest))


def decode_request(data: bytes) -> Request | Cancel:
    """Decode the result of `encode_request`. Raises MalformedMessage."""
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
    """Encode a view's message that it has applied all outputs below this T."""
    return pack((_REACHED, time))


def encode_answer(number: int, answer: Answer | ApiError) -> bytes:
    """Encode an answer of a view. Raises PayloadError for values outside the wire format."""
    if isinstance(answer, ApiError):
        return pack((_REFUSAL, number, answer.code, str(answer), answer.details))
    return pack((_ANSWER, number, dict(answer)))


def decode_answer(data: bytes) -> tuple[int, Answer | ApiError] | ViewTime:
    """Decode a message of a view: (number of the question, answer), or a T.

    Raises MalformedMessage.
    """
    match unpack(data):
        case (code, int(time)) if code == _REACHED:
            return ViewTime(time)
        case (code, int(number), dict(answer)) if code == _ANSWER:
            return number, answer
        case (code, int(number), str(kind), str(text), dict(details)) if code == _REFUSAL:
            return number, ApiError(kind, text, details)
    raise MalformedMessage("not an answer")


class ViewClient:
    """Client of the view shard that listens at a path, across restarts of its process."""

    def __init__(self, name: str, path: str) -> None:
        self.name = name
        self.time = 0
        """The largest T that the view has sent. A restart of the view from an earlier checkpoint
        does not decrease it, so reads never go back in time."""
        self._numbers = count(1)
        self._waiting: dict[int, tuple[asyncio.Future[Answer], bytes]] = {}
        """Number of a question -> the future of its answer, and the message."""
        self._client = IpcClient(path, self._hear, self._ask_again)

    async def ask(self, question: Question, after: int, within_s: float, asker: str = "") -> Answer:
        """Ask, and return the answer. Raises ApiError; "unavailable" if there is none in time."""
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
        """Close the connection."""
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
        """Resend all unanswered questions, after a connect: the process may be a new one."""
        for _, data in list(self._waiting.values()):
            self._client.send(data)
