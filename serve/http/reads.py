"""Reads as of a time: the choice of T, cursors of lists, and streams of changes.

A cursor is an opaque string with which a client continues a list, as of the same T. Its checksum
covers the query, too, so `decode_cursor` rejects a damaged cursor and the cursor of another query.

>>> text = encode_cursor((7, "place"), b"documents cat")
>>> decode_cursor(text, b"documents cat", "q")
(7, 'place')
>>> decode_cursor(text, b"documents dog", "q")  # doctest: +ELLIPSIS
Traceback (most recent call last):
...
driftline.serve.errors.ApiError: this is not a cursor of this query: send it as received, with ...

A stream has one event for all outputs of one label time t. The event's id is the token of t + 1, so
a client that reconnects with its last id neither misses an output nor gets one twice. While there
are no outputs, `time` events report the progress of the stream.
"""

from __future__ import annotations

from base64 import b64decode, urlsafe_b64encode
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from hashlib import blake2b
from itertools import groupby
from time import monotonic

from driftline.engine.errors import DriftlineError, MalformedMessage
from driftline.engine.wire.bundles import Item, item_time
from driftline.engine.wire.codec import pack, unpack
from driftline.serve.errors import ApiError, RetentionExceeded
from driftline.serve.gateway.backend import Backend
from driftline.serve.http.content import Json, error_body, event, to_api_error
from driftline.serve.http.operations import Call
from driftline.serve.http.parameters import AFTER, AT, FROM
from driftline.serve.views.tokens import time_of, token_of

EventEncoder = Callable[[Sequence[Item]], "dict[str, Json] | None"]
"""Function from the outputs of one label time to the data of their event; None: no event."""

_CHECK_BYTES = 8
"""Size of the checksum in a cursor."""


def as_of(backend: Backend, call: Call, view: str) -> int:
    """Return the T of a read: its `at`; without `at`, the larger of the view's T and `after`.

    So all shards answer as of the same T, and wait only for `at` or `after`. Raises ApiError if
    `at` is smaller than `after`, or, without `at`, while the service starts.
    """
    at, after = call[AT], call[AFTER]
    if at is None:
        return max(newest(backend, view), after)
    if at < after:
        raise ApiError("invalid", "at is smaller than after: the write cannot be seen as of at")
    return at


def journal_time(backend: Backend) -> int:
    """Return the T of the journal.

    Raises ApiError while the service starts, because clients of an earlier session may have seen a
    later T.
    """
    if not backend.is_ready:
        raise ApiError("unavailable", "the service is starting: retry a little later")
    return backend.time


def newest(backend: Backend, view: str) -> int:
    """Return the newest T that all shards of a view have reached.

    Raises ApiError while the service starts.
    """
    journal_time(backend)
    return backend.view_time(view)


def encode_cursor(position: object, query: bytes) -> str:
    """Return a cursor for a position in a list. `query`: identifies the list and its order."""
    data = pack(position)
    return urlsafe_b64encode(_check(data, query) + data).rstrip(b"=").decode()


def decode_cursor(text: str, query: bytes, fixed: str) -> object:
    """Decode a cursor. `fixed`: names of the parameters in `query`, for errors. Raises ApiError."""
    try:
        decoded = b64decode(text + "=" * (-len(text) % 4), b"-_", validate=True)
        check, data = decoded[:_CHECK_BYTES], decoded[_CHECK_BYTES:]
        if check == _check(data, query):
            return unpack(data)
    except (ValueError, MalformedMessage):
        pass
    raise cursor_error(fixed)


def cursor_error(fixed: str) -> ApiError:
    """Return the error for an invalid cursor; `fixed`: see `decode_cursor`."""
    text = f"this is not a cursor of this query: send it as received, with the same {fixed}"
    return ApiError("invalid", text, {"parameter": "cursor"})


def _check(position: bytes, query: bytes) -> bytes:
    key = blake2b(query, digest_size=32).digest()
    return blake2b(position, digest_size=_CHECK_BYTES, key=key).digest()


def since_of(call: Call, backend: Backend, view: str | None = None) -> int:
    """Return the T from which a client wants events.

    If the request names none, return the T of `view`, or of the journal if `view` is None. Raises
    ApiError, BadToken, RetentionExceeded.
    """
    last_event_id = call.headers.get("last-event-id")
    since = call[FROM]
    if last_event_id:  # sent by a browser that reconnects
        since = time_of(last_event_id)
    if since is None:
        return journal_time(backend) if view is None else newest(backend, view)
    if since < backend.oldest:
        raise RetentionExceeded.of("the journal", backend.oldest)
    return since


async def changes(
    backend: Backend, since: int, encode: EventEncoder, heartbeat_s: float
) -> AsyncGenerator[bytes, None]:
    """Yield the events from a T on, or a `time` event after `heartbeat_s` without events.

    An item contains one or more events. If the journal can no longer be read, the last event is an
    `error`.
    """
    reached, sent_at = since, monotonic()
    try:
        async with aclosing(backend.spans(since)) as spans:
            async for span in spans:
                parts = []
                for time, items in groupby(span.items, item_time):
                    if time >= reached and (data := encode(list(items))) is not None:
                        label = token_of(time + 1)
                        parts.append(event({**data, "label": label}, label))
                reached = max(reached, span.time)
                if parts or monotonic() >= sent_at + heartbeat_s:
                    sent_at = monotonic()
                    yield b"".join(parts) or progress_event(reached)
    except DriftlineError as error:
        yield event(error_body(to_api_error(error)), name="error")


def progress_event(time: int) -> bytes:
    """Return the event that reports the progress of a stream."""
    return event({"at": token_of(time)}, token_of(time), "time")
