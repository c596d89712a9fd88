"""The shapes of bodies and answers, as JSON Schema."""

from __future__ import annotations

from collections.abc import Mapping

from driftline.index.documents.schema import Collection, StoredField, TextField
from driftline.index.documents.values import Kind
from driftline.index.http.about import ID_SCHEMA
from driftline.serve.http.content import Json
from driftline.serve.http.openapi import event_stream
from driftline.serve.http.operations import Body, Item
from driftline.serve.http.parameters import TOKEN

DOCUMENT: dict[str, Json] = {"type": "object", "not": {"required": ["id"]}}
"""A document of a collection that is not known here."""

_OF_KIND: dict[Kind, Json] = {
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
    """The documents that a collection takes."""
    properties: dict[str, Json] = {}
    for field in collection.fields:
        match field:
            case TextField():
                properties[field.name] = {"type": ["string", "null"]}
            case StoredField():
                properties[field.name] = {}
            case _:
                properties[field.name] = _OF_KIND[field.kind]
    found = {**DOCUMENT, "properties": properties}
    if collection.others == "refused":
        found["additionalProperties"] = False
    return found


_TEXT: Json = {"type": "string"}
_TOTAL: dict[str, Json] = {"type": "integer", "minimum": 0}
_HIT: Json = {
    "type": "object",
    "required": ["id", "score", "label"],
    "properties": {
        "id": ID_SCHEMA,
        "score": {"type": "number"},
        "label": TOKEN,
        "snippet": {
            "type": "string",
            "description": "HTML, in which <mark> is the only markup: what matches.",
        },
        "fields": {"type": "object", "description": "The fields that were asked for."},
    },
}
_FACETS: Json = {
    "type": "object",
    "additionalProperties": {
        "type": "array",
        "items": {
            "type": "object",
            "required": ["value", "count"],
            "properties": {"value": {"type": "string"}, "count": _TOTAL},
        },
    },
}


def _answer(**properties: Json) -> Body:
    return Body({"type": "object", "required": list(properties), "properties": properties})


_FOUND: dict[str, Json] = {"at": TOKEN, "total": _TOTAL, "hits": {"type": "array", "items": _HIT}}
LIKE = _answer(**_FOUND)
SEARCH = Body(
    {
        "type": "object",
        "required": [*_FOUND, "cursor"],
        "properties": {**_FOUND, "cursor": {"type": ["string", "null"]}, "facets": _FACETS},
    }
)
COUNT = _answer(at=TOKEN, total=_TOTAL)
_NUMBER: Json = {"type": "number"}
_SHARE: Json = {
    "type": "object",
    "description": "What a leaf of the query adds; all are as of T, over the whole collection.",
    "required": [
        *("leaf", "score", "frequency", "length", "average", "documents", "having"),
        *("weight", "rarity"),
    ],
    "properties": {
        "leaf": _TEXT,
        "score": _NUMBER,
        "frequency": {**_TOTAL, "description": "How often the document has it."},
        "length": {**_TOTAL, "description": "The words of its field in the document."},
        "average": {"type": "number", "description": "The average of these lengths."},
        "documents": {**_TOTAL, "description": "The documents that have the field."},
        "having": {
            "type": "array",
            "items": _TOTAL,
            "description": "In how many documents each of its words is.",
        },
        "weight": _NUMBER,
        "rarity": _NUMBER,
    },
}
_TREE: Json = {
    "type": "object",
    "required": ["query", "matches", "score", "shares"],
    "properties": {
        "query": {"type": "string", "description": "As it was understood."},
        "matches": {"type": "boolean", "description": "Whether it finds the document."},
        "score": _NUMBER,
        "shares": {"type": "array", "items": _SHARE, "description": "They add up to the score."},
    },
}
EXPLAINED = _answer(at=TOKEN, id=ID_SCHEMA, score=_NUMBER, tree=_TREE)
GOT = _answer(id=ID_SCHEMA, label=TOKEN, at=TOKEN, document={"type": "object"})
WATCHED = _answer(id=ID_SCHEMA, label=TOKEN)
_WATCH: dict[str, Json] = {"id": ID_SCHEMA, "q": _TEXT, "label": TOKEN}
WATCH = _answer(**_WATCH)
WATCHES = _answer(total=_TOTAL, watches={"type": "array", "items": WATCH.schema})

COLLECTIONS = _answer(
    collections={
        "type": "array",
        "items": {
            "type": "object",
            "required": ["name", "others", "fields"],
            "properties": {
                "name": _TEXT,
                "others": {
                    "enum": ["stored", "refused"],
                    "description": "Fields that are not named: kept, or refused.",
                },
                "fields": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "required": ["name", "kind"],
                        "properties": {
                            "name": _TEXT,
                            "kind": {"enum": [*map(str, Kind)]},
                            "analyser": {"type": "string", "description": "Of a text."},
                            "weight": {"type": "number", "description": "Of a text."},
                        },
                    },
                },
            },
        },
    }
)

CHANGES = event_stream(
    "ChangeEvent",
    {
        "oneOf": [
            {
                "type": "object",
                "description": "A document that was put.",
                "required": ["id", "document", "label"],
                "properties": {"id": ID_SCHEMA, "document": {"type": "object"}, "label": TOKEN},
                "additionalProperties": False,
            },
            {
                "type": "object",
                "description": "One that was deleted.",
                "required": ["id", "deleted", "label"],
                "properties": {"id": ID_SCHEMA, "deleted": {"const": True}, "label": TOKEN},
                "additionalProperties": False,
            },
        ]
    },
)
WATCH_EVENTS = event_stream(
    "WatchEvent",
    {
        "type": "object",
        "required": ["watch", "id", "event", "label"],
        "properties": {
            "watch": ID_SCHEMA,
            "id": ID_SCHEMA,
            "event": {"enum": ["begins", "ceases"], "description": "To match."},
            "label": TOKEN,
        },
    },
)

WRITTEN = Body(
    {
        "type": "object",
        "required": ["id", "label"],
        "properties": {
            "id": ID_SCHEMA,
            "label": TOKEN,
            "repeated": {
                "const": True,
                "description": "The write with this key was done before; the label is its.",
            },
            "absent": {"const": True, "description": "There was no document to delete."},
        },
    }
)

NDJSON = "application/x-ndjson"


def _lines(name: str, text: str, of_line: Mapping[str, Json], example: Json = None) -> Body:
    schema: dict[str, Json] = {
        "type": "string",
        "description": f"{text}: each is a {name} (#/components/schemas/{name}).",
    }
    return Body(schema, NDJSON, example, Item(name, of_line))


BULK = _lines(
    "BulkLine",
    "Lines of JSON",
    {
        "oneOf": [
            {
                "type": "object",
                "description": "Puts a document: its id, and its fields.",
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
BULK_ANSWER = _lines(
    "BulkAnswer",
    "Lines of JSON, in the order of those that were sent, without empty ones",
    {
        "oneOf": [
            WRITTEN.schema,
            {
                "type": "object",
                "description": "A line that was refused; without `line`: with wait=visible not all "
                "writes can be found.",
                "required": ["error"],
                "properties": {
                    "line": {"type": "integer", "minimum": 1, "description": "From 1 on."},
                    "id": _TEXT,
                    "error": {"$ref": "#/components/schemas/Problem/properties/error"},
                },
            },
        ]
    },
)
