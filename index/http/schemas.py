"""JSON Schemas of request bodies and answers."""

from __future__ import annotations

from collections.abc import Mapping

from driftline.index.documents import answers
from driftline.index.documents.schema import Collection, StoredField, TextField
from driftline.index.documents.values import Kind
from driftline.index.http.context import ID_SCHEMA
from driftline.serve.http.content import Json
from driftline.serve.http.openapi import body_of, event_stream
from driftline.serve.http.operations import Body, StreamItem

DOCUMENT: dict[str, Json] = {"type": "object", "not": {"required": ["id"]}}
"""JSON Schema of a document in any collection."""

_SCHEMA_OF_KIND: dict[Kind, Json] = {
    Kind.KEYWORD: {
        "anyOf": [
            {"type": "string", "maxLength": 1024},
            {"type": "array", "items": {"type": "string", "maxLength": 1024}},
            {"type": "null"},
        ]
    },
    Kind.NUMBER: {"type": ["number", "null"]},
    Kind.DATE: {
        "type": ["string", "null"],
        "description": "2020-01-31, or 2020-01-31T12:00:00+01:00",
    },
}


def document_schema(collection: Collection) -> dict[str, Json]:
    """Return the JSON Schema of the documents that a collection accepts."""
    properties: dict[str, Json] = {}
    for field in collection.fields:
        match field:
            case TextField():
                properties[field.name] = {"type": ["string", "null"]}
            case StoredField():
                properties[field.name] = {}
            case _:
                properties[field.name] = _SCHEMA_OF_KIND[field.kind]
    schema = {**DOCUMENT, "properties": properties}
    if collection.others == "refused":
        schema["additionalProperties"] = False
    return schema


SEARCH = body_of(answers.SearchResult)
COUNT = body_of(answers.CountAnswer)
EXPLAINED = body_of(answers.Explained)
DOCUMENT_ANSWER = body_of(answers.Document)
WRITTEN = body_of(answers.Written)
WATCH = body_of(answers.Watch)
WATCHES = body_of(answers.WatchList)
COLLECTIONS = body_of(answers.Collections)
CHANGES = event_stream("ChangesEvent", body_of(answers.Change))
WATCH_EVENTS = event_stream("WatchesEvent", body_of(answers.WatchEvent))

NDJSON = "application/x-ndjson"


def _ndjson_body(
    name: str,
    text: str,
    line_schema: Mapping[str, Json],
    example: Json = None,
    components: Mapping[str, Json] | None = None,
) -> Body:
    """Return a body of JSON lines.

    `name`: name of the schema of a line; `text`: beginning of the description; `components`:
    schemas to which `line_schema` refers.
    """
    schema: dict[str, Json] = {
        "type": "string",
        "description": f"{text}: each is a {name} (#/components/schemas/{name}).",
    }
    return Body(schema, NDJSON, example, StreamItem(name, line_schema), components or {})


BULK = _ndjson_body(
    "BulkLine",
    "Lines of JSON",
    {
        "oneOf": [
            {
                "type": "object",
                "description": "Puts the document with this id and these fields.",
                "required": ["id"],
                "properties": {"id": ID_SCHEMA},
                "additionalProperties": {"description": "A field of the document."},
            },
            {
                "type": "object",
                "description": "Deletes the document with this id.",
                "required": ["delete"],
                "properties": {"delete": ID_SCHEMA},
                "additionalProperties": False,
            },
        ]
    },
    '{"id": "1", "title": "Tea"}\n{"delete": "2"}\n',
)
BULK_ANSWER = _ndjson_body(
    "BulkAnswer",
    "Lines of JSON, one for each non-empty line of the request, in the same order",
    {
        "oneOf": [
            WRITTEN.schema,
            {
                "type": "object",
                "description": "The error of a line that was rejected. An error without `line`: "
                "with wait=visible, not all writes became visible in time.",
                "required": ["error"],
                "properties": {
                    "line": {
                        "type": "integer",
                        "minimum": 1,
                        "description": "Number of the line in the request, from 1.",
                    },
                    "id": {"type": "string"},
                    "error": {"$ref": "#/components/schemas/Problem/properties/error"},
                },
            },
        ]
    },
    components=WRITTEN.components,
)
