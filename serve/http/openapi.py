"""The OpenAPI 3.1 description of a service, made from its operations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from inspect import cleandoc

import msgspec

from driftline.serve.http.content import HTTP_STATUS, Json
from driftline.serve.http.operations import Body, Operation, StreamItem
from driftline.serve.http.parameters import LABEL, LABEL_REF, Parameter, RepeatedParameter

PROBLEM: dict[str, Json] = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["code", "message"],
            "properties": {
                "code": {
                    "type": "string",
                    "enum": [*HTTP_STATUS],
                    "description": "The kind of problem, for programs.",
                },
                "message": {"type": "string", "description": "What, where, and what to do."},
                "parameter": {"type": "string", "description": "The invalid parameter."},
                "field": {"type": "string", "description": "The invalid field."},
                "position": {
                    "type": "integer",
                    "minimum": 0,
                    "description": "`query`: the position in the query at which parsing failed.",
                },
                "picture": {
                    "type": "string",
                    "description": "`query`: two lines, the query, and a mark below the position.",
                },
                "leaf": {
                    "type": "string",
                    "description": "`costly`: the part of the query that costs most.",
                },
                "label": {
                    "anyOf": [LABEL_REF, {"type": "null"}],
                    "description": "`changed`: the label of the current document, null if none.",
                },
                "oldest": {
                    **LABEL_REF,
                    "description": "`retained`: the smallest label that can be read.",
                },
                "at": {
                    **LABEL_REF,
                    "description": "`absent`: the T as of which there is no such key.",
                },
            },
        }
    },
}

_PROBLEM_REF: dict[str, Json] = {"$ref": "#/components/schemas/Problem"}

_COMMON_STATUSES = (400, 403, 429, 500, 503)
"""The error statuses that every operation may return."""

_RETRY_AFTER: dict[str, Json] = {
    "Retry-After": {
        "description": "Retry after this many seconds.",
        "schema": {"type": "integer", "minimum": 1},
    }
}
_HEADERS: dict[int, dict[str, Json]] = {
    401: {"WWW-Authenticate": {"schema": {"const": "Bearer"}}},
    429: _RETRY_AFTER,
    503: _RETRY_AFTER,
}
"""Headers of the responses with these statuses."""

_HTTP_NOTES = """

`HEAD` works wherever `GET` does, except for streams, and returns the same headers without a body.
The `Allow` header of a 405 names the methods of a path. OpenAPI 3.1 has no schemas for streams:
`x-itemSchema` of a media type refers to the schema of one line, or of one event."""


def description(title: str, text: str, version: str, operations: Sequence[Operation]) -> Json:
    """Return the OpenAPI description of a service; `text`: its introduction."""
    paths: dict[str, dict[str, Json]] = {}
    schemas: dict[str, Json] = {"Label": LABEL, "Problem": PROBLEM}
    for operation in operations:
        path = operation.path.replace(":path}", "}")
        paths.setdefault(path, {})[operation.method.lower()] = _operation(operation)
        for body in (operation.body, operation.answer):
            if body is not None:
                schemas |= body.components
                if body.item is not None:
                    schemas[body.item.name] = body.item.schema
    return {
        "openapi": "3.1.0",
        "info": {"title": title, "description": text + _HTTP_NOTES, "version": version},
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(operation: Operation) -> Json:
    error_statuses = {*_COMMON_STATUSES, *operation.error_statuses}
    if operation.right is not None:
        error_statuses.add(401)
    if operation.body is not None:
        error_statuses.add(415)
    answers: dict[str, Json] = {"200": _answer(operation.summary, operation.answer)}
    for status in sorted(error_statuses):
        answers[str(status)] = {
            "description": HTTPStatus(status).phrase,
            "content": _content(Body(_PROBLEM_REF)),
            **({"headers": _HEADERS[status]} if status in _HEADERS else {}),
        }
    described: dict[str, Json] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "tags": [operation.tag],
        "parameters": [_parameter(each) for each in operation.parameters],
        "responses": answers,
    }
    if operation.right is not None:
        described["security"] = [{}, {"token": [operation.right]}]
    if operation.body is not None:
        described["requestBody"] = {"required": True, "content": _content(operation.body)}
    return described


def _answer(text: str, body: Body | None) -> Json:
    answer: dict[str, Json] = {"description": text}
    if body is not None:
        answer["content"] = _content(body)
    return answer


def _content(body: Body) -> Mapping[str, Json]:
    content: dict[str, Json] = {"schema": body.schema}
    if body.example is not None:
        content["example"] = body.example
    if body.item is not None:
        content["x-itemSchema"] = {"$ref": f"#/components/schemas/{body.item.name}"}
    return {body.media_type: content}


def _parameter(parameter: Parameter[object]) -> Json:
    described: dict[str, Json] = {
        "name": parameter.name,
        "in": parameter.place,
        "required": parameter.required or parameter.place == "path",
        "description": parameter.description,
        "schema": parameter.schema,
    }
    if isinstance(parameter, RepeatedParameter):
        described |= {"style": "form", "explode": True}
    if parameter.example is not None:
        described["example"] = parameter.example
    return described


def body_of(kind: type) -> Body:
    """Return the JSON body that a msgspec type describes; docstrings become descriptions.

    Precondition: all classes that the type refers to have docstrings.
    """
    (schema,), components = msgspec.json.schema_components(
        [kind],
        ref_template="#/components/schemas/{name}",
        schema_hook=lambda _: {"description": "Any value."},
    )
    for component in components.values():
        component["description"] = cleandoc(component["description"])
    return Body(schema, components=components)


def event_stream(name: str, data: Body) -> Body:
    """Return the body of a response with server-sent events.

    `name`: the name of the schema of an event; `data`: the schema of `data` in an event without an
    `event` field.
    """
    time = _event({"type": "object", "required": ["at"], "properties": {"at": LABEL_REF}}, "time")
    error = _event(_PROBLEM_REF, "error")
    text = (
        "An event. Its `data` is one line of JSON, which this schema describes. A stream with "
        "the `id` as `from` or `Last-Event-ID` resumes after the event. A `time` event reports the "
        "progress of a stream without events. An `error` event says why the stream ends; it has no "
        "`id`."
    )
    item = StreamItem(name, {"description": text, "oneOf": [_event(data.schema), time, error]})
    schema: dict[str, Json] = {
        "type": "string",
        "description": f"Server-sent events, each a {name} (#/components/schemas/{name}).",
    }
    return Body(schema, "text/event-stream", item=item, components=data.components)


def _event(data: Mapping[str, Json], name: str = "") -> dict[str, Json]:
    fields: dict[str, Json] = {"event": {"const": name}} if name else {}
    if name != "error":
        fields["id"] = LABEL_REF
    fields["data"] = data
    return {
        "type": "object",
        "required": [*fields],
        "properties": fields,
        "additionalProperties": False,
    }
