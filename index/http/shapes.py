"""The shapes of bodies and answers, as JSON Schema."""

from __future__ import annotations

from driftline.index.documents.schema import Collection, StoredField, TextField
from driftline.index.documents.values import Kind
from driftline.index.http.about import ID_SCHEMA
from driftline.serve.http.jsons import Json
from driftline.serve.http.operations import Body
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


_TOTAL: Json = {"type": "integer", "minimum": 0}
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
EXPLAINED = _answer(at=TOKEN, id=ID_SCHEMA, score={"type": "number"}, tree={"type": "object"})
GOT = _answer(id=ID_SCHEMA, label=TOKEN, at=TOKEN, document={"type": "object"})
WATCHED = _answer(id=ID_SCHEMA, label=TOKEN)
_WATCH: dict[str, Json] = {"id": ID_SCHEMA, "q": {"type": "string"}, "label": TOKEN}
WATCH = _answer(**_WATCH)
WATCHES = _answer(total=_TOTAL, watches={"type": "array", "items": WATCH.schema})
