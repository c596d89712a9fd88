"""Event streams of an index (changes of documents, events of watches), and routes for watches.

A watch is a stored query. Storing it is a write with a label, so the events of the watch start at
an exact position in the order of writes. The gateway validates the query before it writes the watch
to the input log.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from heapq import merge
from operator import attrgetter
from time import monotonic

import msgspec
from starlette.responses import Response

from driftline.engine.errors import DriftlineError
from driftline.engine.wire.bundles import Item
from driftline.index.documents import answers
from driftline.index.documents.answers import WatchEvent
from driftline.index.documents.schema import Collection
from driftline.index.documents.values import short_repr
from driftline.index.documents.versions import VersionSummary
from driftline.index.documents.writes import WatchWrite
from driftline.index.http import schemas
from driftline.index.http.context import ID_SCHEMA, VIEW, Index, json_of
from driftline.index.http.writing import WAIT, check_document, outcome
from driftline.index.query.parsing import LENGTH_MAX as QUERY_LENGTH_MAX
from driftline.index.searcher.answers import parse_query
from driftline.index.searcher.messages import (
    WATCHES_MAX,
    EventsQuestion,
    FoundEvents,
    WatchesQuestion,
    WatchQuestion,
)
from driftline.serve.errors import ApiError
from driftline.serve.http.content import (
    EventStream,
    Json,
    error_body,
    event,
    loads,
    to_api_error,
)
from driftline.serve.http.operations import Body, Call, Operation
from driftline.serve.http.parameters import (
    AFTER,
    FROM,
    LAST_EVENT_ID,
    Parameter,
    integer_between,
    text_up_to,
)
from driftline.serve.http.reads import changes, progress_event, since_of
from driftline.serve.views.tokens import token_of

EVENTS_PER_ANSWER = 1_000
"""Maximum events of a watch in one answer of a shard."""

ID = Parameter[str](
    "id", text_up_to(512, "bytes"), "", "The id of the watch.", ID_SCHEMA, True, "path"
)
LIMIT = Parameter[int](
    "limit",
    integer_between(1, WATCHES_MAX),
    100,
    "Maximum number of watches.",
    {"type": "integer", "minimum": 1, "maximum": WATCHES_MAX, "default": 100},
)
START_AFTER = Parameter[str](
    "start_after",
    text_up_to(512, "bytes"),
    "",
    "Return only watches whose ids are larger than this one.",
    {"type": "string"},
)

_BODY = Body(
    {
        "type": "object",
        "required": ["q"],
        "properties": {"q": {"type": "string", "maxLength": QUERY_LENGTH_MAX}},
        "additionalProperties": False,
    },
    example={"q": "tea -black"},
)


def change_operation(index: Index) -> Operation:
    """Return `GET /changes`."""

    async def handle(call: Call) -> EventStream:
        collection = index.collection(call)
        since = since_of(call, index.backend)

        def to_json(items: Sequence[Item]) -> dict[str, Json] | None:
            return change(collection, items)

        parts = changes(index.backend, since, to_json, call.settings.heartbeat_s)
        return EventStream(parts)

    return Operation(
        "GET",
        "/changes",
        handle,
        "changes",
        "Each new version of a document, in order, as server-sent events.",
        (FROM, LAST_EVENT_ID),
        answer=schemas.CHANGES,
        error_statuses=(404, 410),
        streams=True,
        tag="changes",
    )


def change(collection: Collection, items: Sequence[Item]) -> dict[str, Json] | None:
    """Return the data of the change event for the outputs of one label time.

    None if these outputs contain no version of a document in `collection`. They contain at most
    one, as the flow has one source.
    """
    for item in items:
        if item.sink < 0:
            continue  # a dead letter: a producer sent an invalid write
        version = outcome(item.value)
        if isinstance(version, VersionSummary) and version.collection == collection.name:
            if version.deleted:
                return {"id": version.id, "deleted": True}
            return {"id": version.id, "document": json.loads(version.stored)}
    return None


def watch_operations(index: Index) -> list[Operation]:
    """Return all operations on watches."""
    watches = _WatchHandlers(index)
    path = "/watches/{id:path}"
    return [
        Operation(
            "GET", path + "/events", watches.events, "watch_events",
            "Documents that start or stop matching the query, as server-sent events.",
            (ID, FROM, LAST_EVENT_ID), answer=schemas.WATCH_EVENTS, error_statuses=(404, 410),
            streams=True, tag="watches",
        ),
        Operation(
            "PUT", path, watches.put, "put_watch", "Store or replace a query.",
            (ID, WAIT), "write", _BODY, schemas.WRITTEN, (404, 408, 413, 503, 507),
            tag="watches",
        ),
        Operation(
            "DELETE", path, watches.delete, "delete_watch", "Remove a stored query.",
            (ID, WAIT), "write", None, schemas.WRITTEN, (404, 503, 507), tag="watches",
        ),
        Operation(
            "GET", path, watches.get, "get_watch", "A stored query.",
            (ID, AFTER), answer=schemas.WATCH, error_statuses=(404, 503), tag="watches",
        ),
        Operation(
            "GET", "/watches", watches.list_watches, "watches", "Stored queries, ordered by id.",
            (LIMIT, START_AFTER, AFTER), answer=schemas.WATCHES, error_statuses=(404, 503),
            tag="watches",
        ),
    ]  # fmt: skip


class _WatchHandlers:
    def __init__(self, index: Index) -> None:
        self._index = index

    async def put(self, call: Call) -> Response:
        collection = self._index.collection(call)
        match loads(await call.body()):
            case {"q": str(query), **rest} if not rest:
                parse_query(query, collection)
                return await self._write(call, collection, query)
            case {"q": str(), **rest}:
                problem = f"it has no field {short_repr(next(iter(rest)))}"
            case {"q": _}:
                problem = "the query must be a text"
            case _:
                problem = 'the field "q" is missing'
        raise ApiError("invalid", f'a watch has the form {{"q": QUERY}}: {problem}')

    async def delete(self, call: Call) -> Response:
        return await self._write(call, self._index.collection(call), None)

    async def _write(self, call: Call, collection: Collection, query: str | None) -> Response:
        check_document(collection, call[ID], None)  # validates the id only
        write = WatchWrite(collection.name, call[ID], query)
        time = await self._index.backend.write(write.record()) + 1
        if call[WAIT] == "visible":
            await self._index.wait_visible(collection, time, call.settings.timeout_s)
        return json_of(answers.Written(call[ID], token_of(time)))

    async def get(self, call: Call) -> Response:
        collection = self._index.collection(call)
        after = max(call[AFTER], self._index.newest)
        return json_of(await self._watch(call, collection, after))

    async def list_watches(self, call: Call) -> Response:
        collection = self._index.collection(call)
        question = WatchesQuestion(
            collection=collection.name, limit=call[LIMIT], start_after=call[START_AFTER]
        )
        after = max(call[AFTER], self._index.newest)
        # Use the answer of any shard: every shard has all watches.
        return json_of(await self._index.ask_first(call, question, answers.WatchList, after))

    async def _watch(self, call: Call, collection: Collection, after: int) -> answers.Watch:
        question = WatchQuestion(collection=collection.name, watch=call[ID])
        return await self._index.ask_first(call, question, answers.Watch, after)

    async def events(self, call: Call) -> EventStream:
        collection = self._index.collection(call)
        since = since_of(call, self._index.backend, VIEW)
        # Fail before the response starts, so that errors have an HTTP status.
        await self._watch(call, collection, max(since, self._index.newest))
        first = await self._read_events(call, collection, since, since)
        return EventStream(self._events(call, collection, *first))

    async def _events(
        self, call: Call, collection: Collection, events: Sequence[WatchEvent], reached: int
    ) -> AsyncGenerator[bytes, None]:
        """Yield the given events, which are complete below the T `reached`, then all later ones.

        Also yield `time` events, which report the progress, and an `error` event if a read fails.
        """
        progress_at = monotonic()  # time of the last progress event
        try:
            yield _as_events(events)
            target = max(reached, self._index.backend.time)  # T up to which to read events
            async with aclosing(self._index.backend.spans(target)) as spans:
                async for span in spans:
                    if span.items:
                        target = max(target, span.time)
                    is_behind = True
                    while is_behind:
                        if reached < target:
                            # Read up to the newest T that all shards have applied. If this T is
                            # not above `reached`, wait until the shards reach the next T.
                            step = min(target, max(self._index.newest, reached + 1))
                            events, reached = await self._read_events(
                                call, collection, reached, step
                            )
                            if events:
                                yield _as_events(events)
                        is_behind = reached < target
                        if not (is_behind or span.items):  # an empty span has no events to read
                            target = reached = max(reached, span.time)
                        if monotonic() >= progress_at + call.settings.heartbeat_s:
                            progress_at = monotonic()
                            yield progress_event(reached)
        except DriftlineError as error:
            yield event(error_body(to_api_error(error)), name="error")

    async def _read_events(
        self, call: Call, collection: Collection, since: int, after: int
    ) -> tuple[list[WatchEvent], int]:
        """Return events of all shards from `since` on, and the T below which they are complete.

        `after`: T that the shards must have reached; the call waits for this. Raises ApiError.
        """
        question = EventsQuestion(
            collection=collection.name, watch=call[ID], since=since, limit=EVENTS_PER_ANSWER
        )
        shard_answers = await self._index.ask(call, question, FoundEvents, after)
        reached = min(each.upto for each in shard_answers)
        events = merge(*(each.events for each in shard_answers), key=attrgetter("label"))
        return [each for each in events if each.label <= token_of(reached)], reached


def _as_events(events: Sequence[WatchEvent]) -> bytes:
    return b"".join(event(msgspec.to_builtins(each), each.label) for each in events)
