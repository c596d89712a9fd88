"""Bodies of requests and responses: strict JSON, errors, and event streams.

>>> loads(b'{"a": 1, "a": 2}')
Traceback (most recent call last):
...
driftline.serve.errors.ApiError: this is not valid JSON: the name 'a' occurs twice

The body of an error is `{"error": {"code": ..., "message": ..., ...}}`.

>>> answer = error_response(ApiError("absent", "there is no such document"))
>>> answer.status_code, bytes(answer.body)
(404, b'{"error":{"code":"absent","message":"there is no such document"}}')
"""

from __future__ import annotations

import asyncio
import json
from codecs import BOM_UTF8
from collections.abc import AsyncGenerator, Awaitable, Mapping, Sequence
from contextlib import aclosing
from itertools import repeat
from math import isinf
from time import monotonic
from typing import NoReturn, TypeVar
from zlib import decompressobj
from zlib import error as ZlibError

from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from driftline.connectors.sinks.lines import LEVELS_MAX
from driftline.engine.errors import DriftlineError
from driftline.serve.errors import ApiError, BadToken, RetentionExceeded
from driftline.serve.views.tokens import token_of

T = TypeVar("T")

GZIP = 31
"""The `wbits` argument with which zlib reads gzip."""

Json = None | bool | int | float | str | Sequence["Json"] | Mapping[str, "Json"]


def loads(data: bytes) -> object:
    """Decode JSON strictly.

    Raises ApiError, also for JSON that parsers interpret differently, such as duplicate names.
    """
    try:
        return _decoder.decode(data.decode())
    except UnicodeDecodeError as error:
        raise ApiError("invalid", f"byte {error.start} is not UTF-8") from None
    except RecursionError:
        raise _invalid_json("it is nested too deep") from None
    except json.JSONDecodeError as error:
        if not data.strip():
            raise _invalid_json("it is empty") from None
        why = str(error)
        if data.startswith(BOM_UTF8):
            why = "it begins with a byte-order mark; send UTF-8 without one"
        elif error.msg == "Extra data":
            why += ": a second value follows the first; in a bulk request each has its own line"
        raise _invalid_json(why) from None
    except ValueError:
        text = "an integer has too many digits: send it as a string"
        raise ApiError("invalid", text) from None


def dumps(value: object) -> bytes:
    """Encode a value as one line of JSON in UTF-8."""
    return _encoder.encode(value).encode()


def to_json_value(value: object, levels: int = LEVELS_MAX) -> Json:
    """Convert a payload to JSON values.

    Bytes become hexadecimal strings. Keys, infinities, NaN and values of other types become strings
    by `str`. A string replaces a list or dict that is nested more than `levels` deep, which some
    JSON parsers could not read.
    """
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if value - value == 0 else str(value)  # JSON has no NaN and no infinity
        case bytes():
            return value.hex()
        case tuple() | list() | dict() if not levels:
            return f"(nested more than {LEVELS_MAX} deep)"
        case tuple() | list():
            return list(map(to_json_value, value, repeat(levels - 1)))
        case dict():
            values = map(to_json_value, value.values(), repeat(levels - 1))
            return dict(zip(map(str, value), values, strict=True))
    return str(value)


def _reject_duplicate_names(pairs: list[tuple[str, object]]) -> dict[str, object]:
    values = dict(pairs)
    if len(values) < len(pairs):
        names = [name for name, _ in pairs]
        duplicate = next(name for name in names if names.count(name) > 1)
        raise _invalid_json(f"the name {duplicate[:64]!r} occurs twice")
    return values


def _reject_constant(text: str) -> NoReturn:
    raise _invalid_json(f"{text} is not a JSON number")


def _invalid_json(why: str) -> ApiError:
    return ApiError("invalid", f"this is not valid JSON: {why}")


def _finite(text: str) -> float:
    value = float(text)
    if isinf(value):
        raise _invalid_json(f"{text:.40} is too large for a float")
    return value


_decoder = json.JSONDecoder(
    object_pairs_hook=_reject_duplicate_names,
    parse_constant=_reject_constant,
    parse_float=_finite,
)
_encoder = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)


HTTP_STATUS = {
    "invalid": 400,
    "query": 400,
    "token": 401,
    "right": 403,
    "absent": 404,
    "path": 404,
    "method": 405,
    "slow": 408,
    "changed": 409,
    "retained": 410,
    "large": 413,
    "encoding": 415,
    "costly": 422,
    "busy": 429,
    "internal": 500,
    "unavailable": 503,
    "full": 507,
}
"""The HTTP status of each error code."""

INTERNAL = ApiError("internal", "the request has failed unexpectedly; see the service's log")

SHUTTING_DOWN = ApiError(
    "unavailable", "the service shut down before it answered: send the request again"
)


def to_api_error(error: DriftlineError) -> ApiError:
    """Convert an error to the ApiError for the client."""
    match error:
        case ApiError():
            return error
        case RetentionExceeded():
            return ApiError("retained", str(error), {"oldest": error.oldest})
        case BadToken():
            return ApiError("invalid", str(error))
    return ApiError("unavailable", str(error))


def error_body(error: ApiError) -> dict[str, Json]:
    """Return an error as JSON values."""
    details = {name: _detail(name, value) for name, value in error.details.items()}
    return {"error": {"code": error.code, "message": str(error), **details}}


def error_response(error: ApiError, headers: Mapping[str, str] | None = None) -> Response:
    """Return the response to a request that failed with an error."""
    status = HTTP_STATUS.get(error.code, 500)
    all_headers = dict(headers or {})
    if status in (429, 503):
        all_headers["Retry-After"] = "1"
    if status == 401:
        all_headers["WWW-Authenticate"] = "Bearer"
    return Response(dumps(error_body(error)), status, all_headers, "application/json")


def _detail(name: str, value: object) -> Json:
    """Convert a detail of an ApiError to JSON; `oldest`, a time, becomes a label."""
    if name == "oldest" and isinstance(value, int):
        return token_of(value)
    match value:
        case None | bool() | int() | float():
            return value
        case str():
            return value.encode("utf-8", "replace").decode()  # replaces lone surrogates
        case list() | tuple():
            return [_detail("", each) for each in value]
        case Mapping():
            return {str(key): _detail("", each) for key, each in value.items()}
    return str(value)


WATCH_AFTER_S = 0.1
"""`while_connected` detects a disconnect only if the answer takes longer than this many seconds."""


class ClientLeft(Exception):
    """The client disconnected before the request was answered."""


BODY_BYTES_PER_S = 1 << 10
"""Minimum average rate, in bytes per second, of a body or of one line of a bulk request.

The first `idle_s` seconds do not count: N bytes may take `idle_s` + N / `BODY_BYTES_PER_S` seconds.
"""

PIECE_BYTES = 1 << 16
"""Largest size of a piece of decompressed bytes; between two pieces, other requests can run."""


class BodyReader:
    """Reader of a request's body, which can be read once, decompressed, part by part.

    `headers`: the headers by lower-case name; `idle_s`: the longest pause between two parts, in
    seconds. The constructor raises the ApiError "encoding" if the body has an encoding other than
    gzip.
    """

    def __init__(self, receive: Receive, headers: Mapping[str, str], idle_s: float) -> None:
        self._receive = receive
        self._idle_s = idle_s
        encoding = headers.get("content-encoding", "").strip().lower()
        if encoding not in ("", "identity", "gzip", "x-gzip"):
            text = f"the Content-Encoding {encoding[:64]!r} is not supported: send gzip, or none"
            raise ApiError("encoding", text)
        self._is_gzip = encoding.endswith("gzip")
        self._waits_since: float | None = None
        """When the current wait for the client began (monotonic); None: no wait."""
        self.reset_rate()

    def reset_rate(self) -> None:
        """Restart the measurement of the rate. Call it at the start of a line of a bulk request."""
        self._began, self._count = monotonic(), 0

    @property
    def waits_s(self) -> float:
        """Seconds for which the reader has waited for the client; 0 if it does not wait now."""
        return 0.0 if self._waits_since is None else monotonic() - self._waits_since

    async def parts(self) -> AsyncGenerator[bytes, None]:
        """Yield the parts of the body.

        Raises ClientLeft; ApiError if the body is damaged or arrives too slowly.
        """
        if not self._is_gzip:
            async for part in self._received():
                yield part
            return
        decompressor = decompressobj(GZIP)
        has_begun = False
        try:
            async for part in self._received():
                rest, piece = part, b""
                while rest or len(piece) == PIECE_BYTES:  # after a full piece zlib may have more
                    if decompressor.eof:  # a gzip file may have several members
                        decompressor = decompressobj(GZIP)
                    has_begun = True
                    piece = decompressor.decompress(rest, PIECE_BYTES)
                    rest = (
                        decompressor.unused_data
                        if decompressor.eof
                        else decompressor.unconsumed_tail
                    )
                    if piece:
                        yield piece
                        await asyncio.sleep(0)
        except ZlibError as error:
            raise ApiError("invalid", f"the body is not gzip, or damaged: {error}") from None
        if has_begun and not decompressor.eof:
            raise ApiError("invalid", "the gzip body is cut off: send it again")

    async def _received(self) -> AsyncGenerator[bytes, None]:
        more = True
        while more:
            seconds = self._began + self._idle_s + self._count / BODY_BYTES_PER_S - monotonic()
            self._waits_since = monotonic()
            try:
                async with asyncio.timeout(min(self._idle_s, seconds)):
                    message = await self._receive()
            except TimeoutError:
                raise ApiError(
                    "slow",
                    f"the body arrives too slowly: nothing for {self._idle_s:g} s, or under "
                    f"{BODY_BYTES_PER_S} bytes/s on average ({self._count} bytes in "
                    f"{monotonic() - self._began:.0f} s)",
                ) from None
            self._waits_since = None
            if message["type"] == "http.disconnect":
                raise ClientLeft
            part = message.get("body", b"")
            self._count += len(part)
            more = message.get("more_body", False)
            yield part


async def while_connected(receive: Receive, answer: Awaitable[T]) -> T:
    """Await an answer, and cancel it if the client disconnects. Raises ClientLeft.

    Precondition: nothing else reads from `receive`. Unread parts of the body are discarded.
    """
    task = asyncio.current_task()
    assert task is not None
    watch_tasks: list[asyncio.Task[None]] = []
    has_left = False

    async def watch() -> None:
        nonlocal has_left
        while (await receive())["type"] != "http.disconnect":
            pass
        has_left = True
        task.cancel()

    loop = asyncio.get_running_loop()
    timer = loop.call_later(WATCH_AFTER_S, lambda: watch_tasks.append(loop.create_task(watch())))
    try:
        return await answer
    except asyncio.CancelledError:
        if not has_left:
            raise
        task.uncancel()
        raise ClientLeft from None
    finally:
        timer.cancel()
        for watch_task in watch_tasks:
            watch_task.cancel()


class EventStream(StreamingResponse):
    """Response with the server-sent events of a generator; closes the generator at the end."""

    def __init__(self, events: AsyncGenerator[bytes, None]) -> None:
        headers = {
            "Cache-Control": "no-store",
            "X-Accel-Buffering": "no",  # a proxy must not buffer the events
        }
        super().__init__(events, headers=headers, media_type="text/event-stream")
        self._events = events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with aclosing(self._events):
            await super().__call__(scope, receive, send)


def json_answer(data: bytes, headers: Mapping[str, str] | None = None) -> Response:
    """Return a JSON response that must not be cached, since the state may change at any time."""
    all_headers = {"Cache-Control": "no-store", **(headers or {})}
    return Response(data, 200, all_headers, "application/json")


def event(data: Mapping[str, Json], id: str = "", name: str = "") -> bytes:
    """Encode a server-sent event. `id`, `name`: "" for an event without the field."""
    lines = [b"event: " + name.encode() + b"\n"] if name else []
    if id:
        lines.append(b"id: " + id.encode() + b"\n")
    return b"".join((*lines, b"data: ", dumps(data), b"\n\n"))
