"""The OpenAPI 3.1 description of a service, made from its operations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from inspect import cleandoc

import msgspec

from driftline.serve.http.content import HTTP_STATUS, Json
from driftline.serve.http.operations import Body, Operation, StreamItem
from driftline.serve.http.parameters import LABEL, LABEL_REF, Parameter, Several

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
                "parameter": {"type": "string", "description": "The parameter that is wrong."},
                "field": {"type": "string", "description": "The field that is wrong."},
                "position": {
                    "type": "integer",
                    "minimum": 0,
                    "description": "`query`: where in its text it cannot be understood.",
                },
                "picture": {
                    "type": "string",
                    "description": "`query`: two lines, the query, and a mark below the position.",
                },
                "leaf": {"type": "string", "description": "`costly`: what costs most."},
                "label": {
                    "anyOf": [LABEL_REF, {"type": "null"}],
                    "description": "`changed`: of the document that is there; null: there is none.",
                },
                "oldest": {
                    **LABEL_REF,
                    "description": "`retained`: the least that can be asked for.",
                },
                "at": {**LABEL_REF, "description": "`absent`: as of this T there is none."},
            },
        }
    },
}

_PROBLEM: dict[str, Json] = {"$ref": "#/components/schemas/Problem"}

_ALWAYS = (400, 403, 429, 500, 503)
"""The error statuses that every operation may return."""

_RETRY_AFTER: dict[str, Json] = {
    "Retry-After": {
        "description": "Try again after so many seconds.",
        "schema": {"type": "integer", "minimum": 1},
    }
}
_HEADERS: dict[int, dict[str, Json]] = {
    401: {"WWW-Authenticate": {"schema": {"const": "Bearer"}}},
    429: _RETRY_AFTER,
    503: _RETRY_AFTER,
}
"""Headers of the responses with these statuses."""

_TEXT = """

`HEAD` is answered wherever `GET` is, but not by streams: the same head, and no body. What else can
be done at a path is said by `Allow` of a 405. OpenAPI 3.1 has no schemas of streams:
`x-itemSchema` of a media type names that of a line, or of an event."""


def description(title: str, text: str, version: str, operations: Sequence[Operation]) -> Json:
    """Return the OpenAPI description of a service with these operations."""
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
        "info": {"title": title, "description": text + _TEXT, "version": version},
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(operation: Operation) -> Json:
    refusals = {*_ALWAYS, *operation.refusals}
    if operation.right is not None:
        refusals.add(401)
    if operation.body is not None:
        refusals.add(415)
    answers: dict[str, Json] = {"200": _answer(operation.summary, operation.answer)}
    for status in sorted(refusals):
        answers[str(status)] = {
            "description": HTTPStatus(status).phrase,
            "content": _content(Body(_PROBLEM)),
            **({"headers": _HEADERS[status]} if status in _HEADERS else {}),
        }
    found: dict[str, Json] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "tags": [operation.tag],
        "parameters": [_parameter(each) for each in operation.parameters],
        "responses": answers,
    }
    if operation.right is not None:
        found["security"] = [{}, {"token": [operation.right]}]
    if operation.body is not None:
        found["requestBody"] = {"required": True, "content": _content(operation.body)}
    return found


def _answer(text: str, body: Body | None) -> Json:
    found: dict[str, Json] = {"description": text}
    if body is not None:
        found["content"] = _content(body)
    return found


def _content(body: Body) -> Mapping[str, Json]:
    found: dict[str, Json] = {"schema": body.schema}
    if body.example is not None:
        found["example"] = body.example
    if body.item is not None:
        found["x-itemSchema"] = {"$ref": f"#/components/schemas/{body.item.name}"}
    return {body.media_type: found}


def _parameter(parameter: Parameter[object]) -> Json:
    found: dict[str, Json] = {
        "name": parameter.name,
        "in": parameter.place,
        "required": parameter.required or parameter.place == "path",
        "description": parameter.description,
        "schema": parameter.schema,
    }
    if isinstance(parameter, Several):
        found |= {"style": "form", "explode": True}
    if parameter.example is not None:
        found["example"] = parameter.example
    return found


def body_of(kind: type) -> Body:
    """Return the JSON body that a type describes; its docstrings become descriptions."""
    (schema,), components = msgspec.json.schema_components(
        [kind],
        ref_template="#/components/schemas/{name}",
        schema_hook=lambda _: {"description": "Any value."},
    )
    for component in components.values():
        component["description"] = cleandoc(component["description"])
    return Body(schema, components=components)


def event_stream(name: str, data: Body) -> Body:
    """Describe server-sent events.

    `name`: the schema name of an event; `data`: the data of events without a name.
    """
    time = _event({"type": "object", "required": ["at"], "properties": {"at": LABEL_REF}}, "time")
    error = _event(_PROBLEM, "error")
    text = (
        "An event. Its `data` are one line of JSON, whose value is described here. Given as `from` "
        "or as `Last-Event-ID`, its `id` resumes a stream after it. An event `time` says how "
        "far a stream without events is, an event `error` why it ends: that one has no `id`."
    )
    item = StreamItem(name, {"description": text, "oneOf": [_event(data.schema), time, error]})
    schema: dict[str, Json] = {
        "type": "string",
        "description": f"Server-sent events, each a {name} (#/components/schemas/{name}).",
    }
    return Body(schema, "text/event-stream", item=item, components=data.components)


def _event(data: Mapping[str, Json], name: str = "") -> dict[str, Json]:
    found: dict[str, Json] = {"event": {"const": name}} if name else {}
    if name != "error":
        found["id"] = LABEL_REF
    found["data"] = data
    return {
        "type": "object",
        "required": [*found],
        "properties": found,
        "additionalProperties": False,
    }
