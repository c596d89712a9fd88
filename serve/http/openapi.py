"""The description of a service, as OpenAPI 3.1: made of its operations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus

from driftline.serve.http.jsons import Json
from driftline.serve.http.operations import Body, Operation
from driftline.serve.http.parameters import Parameter, Several

PROBLEM: dict[str, Json] = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["code", "message"],
            "properties": {
                "code": {"type": "string", "description": "The kind of problem, for programs."},
                "message": {"type": "string", "description": "What, where, and what to do."},
            },
            "additionalProperties": True,
        }
    },
}

_ALWAYS = (400, 429, 500)
"""What any request may meet."""


def description(title: str, text: str, version: str, operations: Sequence[Operation]) -> Json:
    """The description of operations."""
    paths: dict[str, dict[str, Json]] = {}
    for operation in operations:
        path = operation.path.replace(":path}", "}")
        paths.setdefault(path, {})[operation.method.lower()] = _operation(operation)
    return {
        "openapi": "3.1.0",
        "info": {"title": title, "description": text, "version": version},
        "paths": paths,
        "components": {
            "schemas": {"Problem": PROBLEM},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(operation: Operation) -> Json:
    refusals = {*_ALWAYS, *operation.refusals}
    if operation.right is not None:
        refusals |= {401, 403}
    answers: dict[str, Json] = {"200": _answer(operation.summary, operation.answer)}
    for status in sorted(refusals):
        answers[str(status)] = _answer(
            HTTPStatus(status).phrase, Body({"$ref": "#/components/schemas/Problem"})
        )
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


EVENTS = Body({"type": "string", "description": "Server-sent events."}, "text/event-stream")
