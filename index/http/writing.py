"""Writes of documents, one by one: checked before they are handed over, so the log has none that
the flow cannot take.

A write is answered when it is durable. Only one with a condition or a key has to wait for what
becomes of it.
"""

from __future__ import annotations

from collections.abc import Mapping

from starlette.responses import Response

from driftline.index.documents.schema import Collection, DocumentRefused, DocumentTooLarge
from driftline.index.documents.versions import Told, told
from driftline.index.documents.writes import (
    KEY_LENGTH_MAX,
    VERSION,
    NotWritten,
    Outcome,
    Write,
    outcome_of,
)
from driftline.index.http.about import ID, Index
from driftline.index.http.shapes import DOCUMENT, WRITTEN, document_schema
from driftline.serve.errors import Refused
from driftline.serve.http.content.jsons import Json, dumps, loads
from driftline.serve.http.content.parameters import TOKEN, Parameter, choice, within
from driftline.serve.http.operations import Body, Call, Operation, json_answer
from driftline.serve.views.tokens import time_of, token_of

NO_LABEL = "none"


def _condition(text: str) -> int:
    if text == NO_LABEL:
        return 0
    time = time_of(text)
    if time < 2:
        raise ValueError(f"no document has the label {text}; that there is none: {NO_LABEL!r}")
    return time - 1


_within = within(KEY_LENGTH_MAX)


def _key(text: str) -> str:
    """Read `key=`: an empty one, as of a variable that is not set, would be none."""
    if not text:
        raise ValueError("it is empty: give this write a name, or leave `key` out")
    return _within(text)


IF_LABEL = Parameter[int | None](
    "if_label",
    _condition,
    None,
    "Write only if the document that is there has this label; `none`: only if there is none.",
    {"anyOf": [TOKEN, {"const": NO_LABEL}]},
)
KEY = Parameter[str](
    "key",
    _key,
    "",
    "A name for this write, so that it may be sent again: it is done once.",
    {"type": "string", "minLength": 1, "maxLength": KEY_LENGTH_MAX},
)
WAIT = Parameter[str](
    "wait",
    choice("durable", "visible"),
    "durable",
    "When to answer: when the write is durable, or when it can be found, too.",
    {"type": "string", "enum": ["durable", "visible"], "default": "durable"},
)


def checked(collection: Collection, id: str, document: object) -> Mapping[str, object] | None:
    """What is going to be written; None: a deletion. Raises Refused."""
    try:
        collection.check(id, {} if document is None else document)
    except DocumentRefused as error:
        code = "large" if isinstance(error, DocumentTooLarge) else "invalid"
        raise Refused(code, str(error), {"field": error.field} if error.field else {}) from None
    assert document is None or isinstance(document, dict)
    return document


async def written(index: Index, write: Write) -> dict[str, Json]:
    """Write, and give the answer. Raises Refused."""
    time = await index.backend.write(write.record())
    answer: dict[str, Json] = {"id": write.id, "label": token_of(time + 1)}
    if write.expected is None and not write.key:
        return answer
    for item in await index.backend.passed(time, index.settings.within_s):
        match outcome(item.value):
            case NotWritten(reason="changed", time=there):
                label = token_of(there + 1) if there else None
                text = f"its label is {label}" if label else "there is no such document"
                raise Refused("changed", f"the condition does not hold: {text}", {"label": label})
            case NotWritten(reason="repeated", time=earlier):
                return {**answer, "label": token_of(earlier + 1), "repeated": True}
            case NotWritten(reason="absent", time=0):
                return {**answer, "absent": True}
            case NotWritten(reason="absent", time=earlier):
                label = token_of(earlier + 1)
                return {**answer, "label": label, "absent": True, "repeated": True}
    return answer


def outcome(payload: object) -> Outcome | Told:
    """What became of a write; of a version only what is told of it. Raises MalformedMessage."""
    if isinstance(payload, tuple) and len(payload) == 2 and payload[0] == VERSION:
        return told(payload[1])
    return outcome_of(payload)


def write_operations(index: Index) -> list[Operation]:
    """`PUT` and `DELETE /documents/{id}`."""

    async def put(call: Call) -> Response:
        collection = index.collection(call)
        document = loads(await call.body())
        if document is None:
            raise Refused("invalid", "null is no document; that is a JSON object")
        return await do(call, collection, document)

    async def delete(call: Call) -> Response:
        return await do(call, index.collection(call), None)

    async def do(call: Call, collection: Collection, document: object) -> Response:
        content = checked(collection, call[ID], document)
        write = Write(collection.name, call[ID], content, call[IF_LABEL], call[KEY])
        answer = await written(index, write)
        if call[WAIT] == "visible":
            label = answer["label"]
            assert isinstance(label, str)
            await index.visible(collection, time_of(label), index.settings.within_s)
        return json_answer(dumps(answer))

    default = index.schema.collections.get(index.default)
    document = DOCUMENT if default is None else document_schema(default)
    parameters = ID, IF_LABEL, KEY, WAIT
    path = "/documents/{id:path}"
    refusals = 404, 408, 409, 503, 507
    return [
        Operation(
            "PUT",
            path,
            put,
            "put_document",
            "Put a document in place of what is there.",
            parameters,
            "write",
            Body(document, example={"title": "Tea", "text": "Tea is made of leaves."}),
            WRITTEN,
            (*refusals, 413),
            tag="documents",
        ),
        Operation(
            "DELETE",
            path,
            delete,
            "delete_document",
            "Delete a document.",
            parameters,
            "write",
            answer=WRITTEN,
            refusals=refusals,
            tag="documents",
        ),
    ]
