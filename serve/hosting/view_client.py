"""Client of a view in another process, for an asyncio loop, and the messages between the two.

A client sends a `Request`, or a `Cancel` for an earlier one. The view replies once to each request
that is not cancelled, with an answer or an error. If the view's process dies, no question is lost:
the client resends unanswered questions to the new process.

Whenever its T grows, the view sends a `ViewTime` to each client. So a client knows as of which T it
can read without waiting.
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

REPLY_GRACE_S = 1.0
"""How many seconds longer than `Request.timeout_s` the client waits for the reply.

After `timeout_s`, the view itself rejects a question that waits for a T. So if no reply arrives,
the view is overloaded, hung or dead.
"""

_REQUEST, _CANCEL, _ANSWER, _ERROR, _TIME = range(5)


class Request(NamedTuple):
    """A question, which the view rejects if it does not reach the required T within `timeout_s`.

    `number`: identifies the question on its connection; `after`: the view answers once its T is at
    least this, and at least the question's `at`; `client`: the name or address of the end user. The
    view shares its CPU time fairly between end users.
    """

    number: int
    question: Question
    after: int
    timeout_s: float
    client: str = ""


class Cancel(NamedTuple):
    """The cancellation of a question."""

    number: int


class ViewTime(NamedTuple):
    """Message with the T of a view, which has applied all outputs below T."""

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
            kind,
            int(number),
            dict(question),
            int(after),
            int() | float() as timeout_s,
            str(client),
        ) if kind == _REQUEST:
            return Request(number, question, after, timeout_s, client)
        case (kind, int(number)) if kind == _CANCEL:
            return Cancel(number)
    raise MalformedMessage("not a question")


def encode_view_time(time: int) -> bytes:
    """Encode the message with the T of a view."""
    return pack((_TIME, time))


def encode_answer(number: int, answer: Answer | ApiError) -> bytes:
    """Encode an answer of a view. Raises PayloadError for values outside the wire format."""
    if isinstance(answer, ApiError):
        return pack((_ERROR, number, answer.code, str(answer), answer.details))
    return pack((_ANSWER, number, dict(answer)))


def decode_answer(data: bytes) -> tuple[int, Answer | ApiError] | ViewTime:
    """Decode a message of a view: (number of the question, answer or error), or a `ViewTime`.

    Raises MalformedMessage.
    """
    match unpack(data):
        case (kind, int(time)) if kind == _TIME:
            return ViewTime(time)
        case (kind, int(number), dict(answer)) if kind == _ANSWER:
            return number, answer
        case (kind, int(number), str(error_code), str(text), dict(details)) if kind == _ERROR:
            return number, ApiError(error_code, text, details)
    raise MalformedMessage("not an answer")


class ViewClient:
    """Client of the view shard that listens at a path; survives restarts of the shard's process."""

    def __init__(self, name: str, path: str) -> None:
        self.name = name
        self.time = 0
        """The largest T that the view has sent. A restart of the view from an earlier checkpoint
        does not decrease it, so reads never go back in time."""
        self._numbers = count(1)
        self._waiting: dict[int, tuple[asyncio.Future[Answer], bytes]] = {}
        """Number of a question -> (future of its answer, message with the request)."""
        self._client = IpcClient(path, self._receive, self._resend_unanswered)

    async def ask(
        self, question: Question, after: int, timeout_s: float, client: str = ""
    ) -> Answer:
        """Send a question, and return the answer (arguments: see `Request`).

        Raises ApiError: the view's error; "unavailable" if no answer arrives in time; "invalid" if
        the question has values outside the wire format.
        """
        number = next(self._numbers)
        try:
            data = encode_request(Request(number, question, after, timeout_s, client))
        except PayloadError as error:
            raise ApiError("invalid", f"the question cannot be sent: {error}") from None
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future, data
        try:
            self._client.send(data)
            async with asyncio.timeout(timeout_s + REPLY_GRACE_S):
                return await future
        except TimeoutError:
            text = f"view {self.name} has not answered in time: it is busy or restarting; retry"
            raise ApiError("unavailable", text) from None
        finally:
            self._waiting.pop(number, None)
            if not future.done() or future.cancelled():
                self._client.send(encode_request(Cancel(number)))

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def _receive(self, data: bytes) -> None:
        message = decode_answer(data)
        if isinstance(message, ViewTime):
            self.time = max(self.time, message.time)
            return
        number, answer = message
        future, _ = self._waiting.get(number, (None, b""))
        if future is None or future.done():
            return
        if isinstance(answer, ApiError):
            future.set_exception(answer)
        else:
            future.set_result(answer)

    def _resend_unanswered(self) -> None:
        """Send all unanswered questions after a connect; the view's process may be a new one."""
        for _, data in list(self._waiting.values()):
            self._client.send(data)
