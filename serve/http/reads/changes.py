"""The journal as server-sent events: each output once, in order, from any retained T on.

An event is for all outputs of one time, and its id is the token of the T behind them: so a client
that comes again with the last id that it has misses nothing and gets nothing twice. While there are
none, `time` events say how far the stream is.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing
from itertools import groupby, repeat
from typing import TypeVar

from driftline.engine.flow.context import letter_of
from driftline.engine.operators.steps import FAILURES
from driftline.engine.sinks.lines import LEVELS_MAX
from driftline.engine.wire.bundles import Item, item_time
from driftline.serve.errors import NoLongerRetained, Refused
from driftline.serve.gateway.backend import Backend
from driftline.serve.http.content.jsons import Json
from driftline.serve.http.content.parameters import FROM, LAST_EVENT_ID, TOKEN
from driftline.serve.http.content.problems import described, refusal_of
from driftline.serve.http.content.streams import Streamed, event
from driftline.serve.http.openapi import event_stream
from driftline.serve.http.operations import Call, Operation
from driftline.serve.http.reads.times import now
from driftline.serve.views.tokens import time_of, token_of

T = TypeVar("T")

Told = Callable[[Sequence[Item]], "dict[str, Json] | None"]
"""What is told of the outputs of one time; None: nothing."""


def since_of(call: Call, backend: Backend) -> int:
    """The T from which on a client wants events. Raises Refused, BadToken, NoLongerRetained."""
    last = call.headers.get("last-event-id")
    since = call[FROM]
    if last:  # sent by a browser that comes again, to the same address
        since = time_of(last)
    if since is None:
        return now(backend)
    if since < backend.oldest:
        raise NoLongerRetained.by("the journal", backend.oldest)
    return since


def streamed(parts: AsyncGenerator[bytes, None], call: Call) -> Streamed:
    """A stream of events."""
    return Streamed(parts, "text/event-stream", call.settings.idle_s)


async def changes(
    backend: Backend, since: int, told: Told, heartbeat_s: float
) -> AsyncGenerator[bytes, None]:
    """The events from a T on."""
    reached = since
    try:
        async with aclosing(with_pauses(backend.spans(since), heartbeat_s)) as spans:
            async for span in spans:
                parts = []
                for time, items in groupby(span.items if span else (), item_time):
                    if time >= reached and (data := told(list(items))) is not None:
                        label = token_of(time + 1)
                        parts.append(event({**data, "label": label}, label))
                if span:
                    reached = max(reached, span.time)
                if parts:
                    yield b"".join(parts)
                elif span is None:
                    yield moment(reached)
    except (NoLongerRetained, Refused) as error:
        yield event(described(refusal_of(error)), name="error")


def moment(time: int) -> bytes:
    """The event that says how far a stream is."""
    return event({"at": token_of(time)}, token_of(time), "time")


async def with_pauses(source: AsyncIterator[T], pause_s: float) -> AsyncGenerator[T | None, None]:
    """What there is, and None at least after each pause; what is there is not lost by it."""
    coming: asyncio.Task[T] | None = None
    try:
        last = asyncio.get_running_loop().time()
        while True:
            if coming is None:
                coming = asyncio.ensure_future(_next(source))
            rest = last + pause_s - asyncio.get_running_loop().time()
            done, _ = await asyncio.wait((coming,), timeout=max(0.0, rest))
            if done:
                found, coming = coming, None
                try:
                    yield found.result()
                except StopAsyncIteration:
                    return
            if asyncio.get_running_loop().time() >= last + pause_s:
                last = asyncio.get_running_loop().time()
                yield None
    finally:
        if coming is not None:
            coming.cancel()
            await asyncio.gather(coming, return_exceptions=True)
        close = getattr(source, "aclose", None)
        if close is not None:
            await close()


async def _next(source: AsyncIterator[T]) -> T:
    return await anext(source)


_TEXT: Json = {"type": "string"}
_OUTPUT: Json = {
    "type": "object",
    "required": ["sink", "value"],
    "properties": {"sink": _TEXT, "value": {}},
}
_LETTER: Json = {
    "type": "object",
    "description": "An element that failed: the `record`, the wrong `output`, or a `text` of it.",
    "required": ["operator", "key", "error", "line"],
    "properties": {
        **dict.fromkeys(("operator", "key", "error", "line", "text"), _TEXT),
        "record": {},
        "output": {},
    },
}
_DEAD: Json = {
    "type": "object",
    "required": ["dead_letter"],
    "properties": {"dead_letter": _LETTER},
}
_OUTPUTS: dict[str, Json] = {
    "type": "object",
    "required": ["label", "outputs"],
    "properties": {
        "label": TOKEN,
        "outputs": {"type": "array", "items": {"oneOf": [_OUTPUT, _DEAD]}},
    },
}


def journal_operation(backend: Backend, sinks: Sequence[str]) -> Operation:
    """`GET /changes` of any flow: its outputs, and its dead letters among them."""
    told = told_of(sinks)

    async def does(call: Call) -> Streamed:
        since = since_of(call, backend)
        return streamed(changes(backend, since, told, call.settings.heartbeat_s), call)

    return Operation(
        "GET",
        "/changes",
        does,
        "changes",
        "The outputs of the flow, as server-sent events.",
        (FROM, LAST_EVENT_ID),
        answer=event_stream("OutputsEvent", _OUTPUTS),
        refusals=(410,),
        streams=True,
        tag="changes",
    )


def told_of(sinks: Sequence[str]) -> Told:
    """Of each output the name of its sink and its payload, of each dead letter all that it has."""

    def output(item: Item) -> dict[str, Json]:
        if item.sink == FAILURES:
            return {"dead_letter": plain(letter_of(item.value))}
        return {"sink": sinks[item.sink], "value": plain(item.value)}

    return lambda items: {"outputs": list(map(output, items))}


def plain(value: object, levels: int = LEVELS_MAX) -> Json:
    """A payload as JSON: bytes are texts of hexadecimal digits, keys are texts; what is nested too
    deep for readers of JSON is replaced by a text that says so."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if value - value == 0 else str(value)  # JSON has no NaN
        case bytes():
            return value.hex()
        case tuple() | list() | dict() if not levels:
            return f"(nested more than {LEVELS_MAX} deep)"
        case tuple() | list():
            return list(map(plain, value, repeat(levels - 1)))
        case dict():
            values = map(plain, value.values(), repeat(levels - 1))
            return dict(zip(map(str, value), values, strict=True))
    return str(value)
