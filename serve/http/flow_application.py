"""The HTTP application of any flow: writes records, reads values, streams outputs.

`POST /records` passes a record to the flow. Each sink has a key-value view
(`serve.views.keyvalue`). `GET /views/{name}/{key}?kind=&at=&after=` reads the value of a key as of
a T. `GET /views/{name}?kind=&prefix=&limit=&start_after=&cursor=&at=&after=` reads keys in order,
and their values. `GET /changes` streams all outputs as server-sent events.

A cursor continues a list as of the same T. A cursor can contain any key, including keys that JSON
cannot represent, such as bytes or infinity.
"""

from __future__ import annotations

from collections.abc import Sequence

from starlette.responses import Response
from starlette.types import ASGIApp

from driftline.engine.errors import MalformedMessage
from driftline.engine.operators.context import dead_letter_fields
from driftline.engine.operators.steps import FAILURES
from driftline.engine.texts import did_you_mean
from driftline.engine.wire.bundles import Item
from driftline.engine.wire.codec import pack
from driftline.serve.errors import ApiError
from driftline.serve.gateway.backend import Backend
from driftline.serve.http.application import build
from driftline.serve.http.content import EventStream, Json, dumps, json_answer, loads, to_json_value
from driftline.serve.http.openapi import event_stream
from driftline.serve.http.operations import Body, Call, HttpSettings, Operation
from driftline.serve.http.parameters import (
    AFTER,
    AT,
    FROM,
    LABEL_REF,
    LAST_EVENT_ID,
    Parameter,
    choice,
    integer_between,
    text_up_to,
)
from driftline.serve.http.reads import (
    EventEncoder,
    as_of,
    changes,
    cursor_error,
    decode_cursor,
    encode_cursor,
    newest,
    since_of,
)
from driftline.serve.views.hosted import Answer
from driftline.serve.views.tokens import token_of

READY_TIMEOUT_S = 2.0
"""Timeout of the views' answers to the readiness check, in seconds."""

DESCRIPTION = (
    "A flow whose outputs have one total order. Sending a record returns its label. A read with "
    "`after=LABEL` sees the effects of the record, `at=T` repeats a read exactly, and `from=T` "
    "resumes a stream."
)

_STRING: dict[str, Json] = {"type": "string"}
LIMIT_MAX = 1_000

_CURSOR_PARAMETERS = "view and prefix"
"""The parameters that have to be the same on all pages of a list."""

NAME = Parameter[str](
    "name", text_up_to(200), "", "The view: a sink's name.", _STRING, True, "path"
)
KEY = Parameter[str]("key", text_up_to(4096), "", "The key.", _STRING, True, "path")
KIND = Parameter[str](
    "kind",
    choice("text", "json"),
    "text",
    "How the request writes a key: as plain text, or as JSON (a number, true, false, null, or a "
    "list).",
    {"type": "string", "enum": ["text", "json"], "default": "text"},
)
PREFIX = Parameter[str]("prefix", text_up_to(4096), "", "Only text keys with this prefix.", _STRING)
LIMIT = Parameter[int](
    "limit",
    integer_between(1, LIMIT_MAX),
    100,
    "The largest number of keys to return.",
    {"type": "integer", "minimum": 1, "maximum": LIMIT_MAX, "default": 100},
)
START_AFTER = Parameter[str | None](
    "start_after", text_up_to(4096), None, "Only keys that come after this.", _STRING
)
CURSOR = Parameter[str](
    "cursor",
    str,
    "",
    "Continue a list, as of the same T: the `cursor` of the previous answer.",
    _STRING,
)

_ROW: dict[str, Json] = {"key": {}, "label": LABEL_REF, "value": {}}
_ITEM: Json = {"type": "object", "required": ["key", "label", "value"], "properties": _ROW}
_VALUE = Body(
    {
        "type": "object",
        "required": ["at", "key", "label", "value"],
        "properties": {"at": LABEL_REF, **_ROW},
    }
)
_VALUES = Body(
    {
        "type": "object",
        "required": ["at", "items", "cursor"],
        "properties": {
            "at": LABEL_REF,
            "items": {"type": "array", "items": _ITEM},
            "cursor": {
                "type": ["string", "null"],
                "description": "null: no further keys. A page may have fewer keys than limit.",
            },
        },
    }
)

_OUTPUT: Json = {
    "type": "object",
    "required": ["sink", "value"],
    "properties": {"sink": _STRING, "value": {}},
}
_DEAD_LETTER: Json = {
    "type": "object",
    "description": (
        "A failed element. Exactly one field contains it: `record`; `output`, if the output was "
        "invalid; or `text`, the beginning of either, if it cannot be encoded or is too large."
    ),
    "required": ["operator", "key", "error", "line"],
    "properties": {
        **dict.fromkeys(("operator", "key", "error", "line", "text"), _STRING),
        "record": {},
        "output": {},
    },
}
_FAILURE: Json = {
    "type": "object",
    "required": ["dead_letter"],
    "properties": {"dead_letter": _DEAD_LETTER},
}
_OUTPUTS: dict[str, Json] = {
    "type": "object",
    "required": ["label", "outputs"],
    "properties": {
        "label": LABEL_REF,
        "outputs": {"type": "array", "items": {"oneOf": [_OUTPUT, _FAILURE]}},
    },
}


def flow_application(
    backend: Backend, sinks: Sequence[str], settings: HttpSettings | None = None
) -> ASGIApp:
    """Build the application of a flow. `sinks`: names of the sinks, and so of the views."""
    settings = settings or HttpSettings()

    async def ready() -> None:
        for sink in sinks:
            question = {"what": "items", "prefix": "", "limit": 0}
            await backend.ask(
                sink, question, after=newest(backend, sink), timeout_s=READY_TIMEOUT_S
            )

    operations = [
        record_operation(backend),
        *value_operations(backend, sinks),
        changes_operation(backend, sinks),
    ]
    return build("Driftline flow", DESCRIPTION, operations, backend, ready, settings)


def record_operation(backend: Backend) -> Operation:
    """Return `POST /records`, which writes one record to the flow's source."""

    async def handler(call: Call) -> Response:
        record = loads(await call.body())
        if record is None:
            raise ApiError("invalid", "null is not a record")
        time = await backend.write(record)
        return json_answer(dumps({"label": token_of(time + 1)}))

    return Operation(
        "POST",
        "/records",
        handler,
        "record",
        "Send a record to the flow; the response follows once the record is durable.",
        right="write",
        body=Body({}, example={"text": "a record"}),
        answer=Body(
            {"type": "object", "required": ["label"], "properties": {"label": LABEL_REF}},
        ),
        error_statuses=(408, 413, 507),
        tag="records",
    )


def value_operations(backend: Backend, views: Sequence[str]) -> list[Operation]:
    """Return the operations on the views with these names."""
    handlers = _ViewHandlers(backend, views)
    error_statuses = 404, 410, 503
    return [
        Operation(
            "GET",
            "/views/{name}",
            handlers.list,
            "values",
            "The keys of a view in order, and their values.",
            (NAME, KIND, PREFIX, LIMIT, START_AFTER, CURSOR, AT, AFTER),
            answer=_VALUES,
            error_statuses=error_statuses,
            tag="views",
        ),
        Operation(
            "GET",
            "/views/{name}/{key:path}",
            handlers.get,
            "value",
            "The value of a key.",
            (NAME, KEY, KIND, AT, AFTER),
            answer=_VALUE,
            error_statuses=error_statuses,
            tag="views",
        ),
    ]


class _ViewHandlers:
    """Handlers of the operations on views."""

    def __init__(self, backend: Backend, views: Sequence[str]) -> None:
        self._backend = backend
        self._views = views

    async def get(self, call: Call) -> Response:
        key, time = _key(call, call[KEY]), as_of(self._backend, call, self._view(call))
        for answer in await self._ask(call, {"what": "value", "key": key, "at": time}):
            return json_answer(dumps({"at": token_of(time), **_row({**answer, "key": key})}))
        raise ApiError("absent", "there is no such key")

    async def list(self, call: Call) -> Response:
        question = {"what": "items", "prefix": call[PREFIX], "limit": call[LIMIT]}
        list_key = pack((call[NAME], call[PREFIX]))
        if call[CURSOR]:
            time, question["start_after"] = _decode_position(call, list_key)
        else:
            time = as_of(self._backend, call, self._view(call))
            if (start_after := call[START_AFTER]) is not None:
                question["start_after"] = _key(call, start_after)
        for answer in await self._ask(call, {**question, "at": time}):  # the view has one shard
            match answer:
                case {"items": (*items, {"key": last} as row), "more": True}:
                    return _page(time, [*items, row], encode_cursor((time, last), list_key))
                case {"items": (*items,), "more": False}:
                    return _page(time, items, None)
        raise MalformedMessage("a view has sent an unexpected answer")

    def _view(self, call: Call) -> str:
        """Return the name of the view that a request names. Raises ApiError."""
        name: str = call[NAME]
        if name not in self._views:
            known = f"known views: {', '.join(self._views)}" if self._views else "there are none"
            near = did_you_mean(name, self._views)
            raise ApiError("absent", f"there is no view {name!r}{near}; {known}")
        return name

    async def _ask(self, call: Call, question: dict[str, object]) -> Sequence[Answer]:
        view, timeout_s = self._view(call), call.settings.timeout_s
        return await self._backend.ask(
            view, question, after=call[AFTER], timeout_s=timeout_s, client=call.client
        )


def _page(time: int, items: Sequence[object], cursor: str | None) -> Response:
    rows = list(map(_row, items))
    return json_answer(dumps({"at": token_of(time), "items": rows, "cursor": cursor}))


def _row(answer: object) -> dict[str, Json]:
    match answer:
        case {"key": key, "time": int(time), "value": value}:
            return {
                "key": to_json_value(key),
                "label": token_of(time + 1),
                "value": to_json_value(value),
            }
    raise MalformedMessage("a view has sent an unexpected answer")


def _decode_position(call: Call, list_key: bytes) -> tuple[int, object]:
    """Return the T of a cursor, and the key after which the list continues. Raises ApiError."""
    if call[START_AFTER] is not None:
        raise ApiError("invalid", "cursor and start_after cannot be combined: omit one of them")
    match decode_cursor(call[CURSOR], list_key, _CURSOR_PARAMETERS):
        case (int(time), key) if call[AT] in (None, time):
            return time, key
        case (int(), _):
            raise ApiError("invalid", "at differs from the T of the cursor: omit at")
    raise cursor_error(_CURSOR_PARAMETERS)


def _key(call: Call, text: str) -> object:
    return text if call[KIND] == "text" else loads(text.encode())


def changes_operation(backend: Backend, sinks: Sequence[str]) -> Operation:
    """Return `GET /changes`, which streams the outputs of a flow, including its dead letters."""
    encode = event_encoder(sinks)

    async def handler(call: Call) -> EventStream:
        since = since_of(call, backend)
        return EventStream(changes(backend, since, encode, call.settings.heartbeat_s))

    return Operation(
        "GET",
        "/changes",
        handler,
        "changes",
        "The outputs of the flow, as server-sent events.",
        (FROM, LAST_EVENT_ID),
        answer=event_stream("OutputsEvent", Body(_OUTPUTS)),
        error_statuses=(410,),
        streams=True,
        tag="changes",
    )


def event_encoder(sinks: Sequence[str]) -> EventEncoder:
    """Return an encoder that writes sink and value of outputs, and all fields of dead letters."""

    def output(item: Item) -> dict[str, Json]:
        if item.sink == FAILURES:
            return {"dead_letter": to_json_value(dead_letter_fields(item.value))}
        return {"sink": sinks[item.sink], "value": to_json_value(item.value)}

    return lambda items: {"outputs": list(map(output, items))}
