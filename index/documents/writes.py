"""Flow of an index: maps each valid write to one output, its outcome.

The flow first analyses the text of each write; an invalid write becomes a dead letter. Then the
flow decides on the writes of each document in label order. A write creates a version, unless its
condition does not hold, its idempotency key repeats that of an earlier write, or there is no
document to delete. The outcome has the label of the write.

The same flow puts and removes watches, which are stored queries, so each watch write has a position
in the order of all writes. The flow passes a watch write on unchanged and does not parse the query.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Literal, NamedTuple, get_args

from driftline.engine.errors import MalformedMessage
from driftline.engine.flow.flow import Flow
from driftline.engine.operators.context import Context
from driftline.engine.state.managed import ValueState
from driftline.index.documents.records import WatchWrite as WatchWrite
from driftline.index.documents.records import Write as Write
from driftline.index.documents.schema import (
    Collection,
    DocumentRefused,
    Schema,
    TextField,
    ValueField,
    check_id,
)
from driftline.index.documents.values import Value, short_repr, value_of
from driftline.index.documents.versions import (
    DocumentVersion,
    Words,
    decode,
    encode,
    pack_replaced,
    replaced_fields,
    words_of,
)

SINK = "documents"

KEYS_PER_DOCUMENT = 8
"""Number of recent idempotency keys that are stored per document to detect repeated writes."""

KEY_LENGTH_MAX = 200
"""Largest length of an idempotency key, in characters."""

QUERY_LENGTH_MAX = 4096
"""Largest length of a watch's query, in characters; equal to the limit of the query parser."""

VERSION: Literal["version"] = "version"
WATCHED: Literal["watched"] = "watched"
"""Kinds of outputs. An output is (kind, fields); that of a `NotWritten` has its reason as kind."""

_CANONICAL = json.JSONEncoder(ensure_ascii=False, sort_keys=True, separators=(",", ":"))

Reason = Literal["changed", "repeated", "absent"]


class Watched(NamedTuple):
    """Outcome of a watch write: the query of the watch from the write's label on; None: removed.

    The flow emits this outcome even if the watch already has this query. The query is unparsed text
    and may be invalid; consumers of the output parse it.
    """

    collection: str
    id: str
    query: str | None


class NotWritten(NamedTuple):
    """A write that created no version.

    `reason` and `time`, a label time:
    "changed": the condition does not hold; time of the current version, 0 if there is none.
    "repeated": an earlier write had the same idempotency key; time of that write.
    "absent": no document to delete; time of an earlier write with the same key, 0 if there is none.
    """

    collection: str
    id: str
    reason: Reason
    time: int


Outcome = DocumentVersion | NotWritten | Watched

PackedStatistics = bytes
"""Result of `pack_replaced`: the statistics to subtract when a version is replaced."""

DocumentState = tuple[int, PackedStatistics | None, tuple[tuple[str, int], ...]]
"""State of a document: (time, replaced, keys).

`time`: label time of the current version, 0 if there is none; `replaced`: statistics that the next
version subtracts, None if there is no current version; `keys`: (idempotency key, label time) of the
last writes with a key. The time of a deletion that found no document is negated.
"""

AnalysedWrite = tuple[tuple[object, ...], PackedStatistics, int | None, str]
"""(encoded version without `replaced`, packed `replaced` of the next version, expected, key)"""

DecisionInput = AnalysedWrite | Watched
"""Input of `_decide`. On the wire a `Watched` becomes a plain tuple of length 3."""


def document_flow(schema: Schema) -> Flow:
    """Build the flow: source `writes` reads write records, sink `documents` receives outcomes."""
    flow = Flow("index")
    (
        flow.source("writes", of=dict[str, object])
        .map(_analysis(schema), name="analyse")
        .key_by(_key)
        .process(_decide, ValueState[DocumentState]("document"), name="document")
        .sink(SINK)
    )
    return flow


def outcome_of(payload: object) -> Outcome:
    """Decode an output of the flow. Raises MalformedMessage for anything else."""
    if isinstance(payload, tuple) and len(payload) == 2:
        kind, fields = payload
        if kind == VERSION:
            return decode(fields)
        match fields:
            case (str(collection), str(id), (str() | None) as query) if kind == WATCHED:
                return Watched(collection, id, query)
            case (str(collection), str(id), int(time)) if kind in get_args(Reason):
                return NotWritten(collection, id, kind, time)
    raise MalformedMessage("not an outcome of a write")


def _analysis(schema: Schema) -> Callable[[dict[str, object]], DecisionInput]:
    """Return the function that analyses writes for the collections of a schema."""

    def analyse(record: dict[str, object]) -> DecisionInput:
        write = write_of(record, schema)
        if isinstance(write, WatchWrite):
            return Watched(write.collection, write.id, write.query)
        collection = schema.collections[write.collection]
        if write.document is None:
            version = deletion(collection, write.id)
        else:
            version = version_of(collection, write.id, write.document)
        return encode(version), pack_replaced(replaced_fields(version)), write.expected, write.key

    return analyse


def write_of(record: object, schema: Schema) -> Write | WatchWrite:
    """Validate and convert an untrusted record. Raises DocumentRefused."""
    match record:
        case {"collection": name, "watch": id, "query": (str() | None) as query, **more}:
            _check_no_other_fields(more)
            collection = _collection(name, schema, f"the watch {short_repr(id)}")
            try:
                check_id(id)
                _check_length("query", query or "", QUERY_LENGTH_MAX)
            except DocumentRefused as error:
                raise _with_name(error, "watch", id, collection) from None
            return WatchWrite(collection.name, str(id), query)
        case {
            "collection": name,
            "id": id,
            "document": document,
            "expected": (int() | None) as expected,
            "key": str(key),
            **more,
        }:
            _check_no_other_fields(more)
            collection = _collection(name, schema, f"the document {short_repr(id)}")
            try:
                collection.check(id, {} if document is None else document)
                _check_length("key", key, KEY_LENGTH_MAX)
            except DocumentRefused as error:
                raise _with_name(error, "document", id, collection) from None
            assert document is None or isinstance(document, dict), "it was checked"
            return Write(collection.name, str(id), document, expected, key)
    raise DocumentRefused(
        f"{short_repr(record)} is not a write; build it with `Write` or `WatchWrite`"
    )


def _collection(name: object, schema: Schema, what: str) -> Collection:
    """Return a collection; `what`: the document or watch, for the error. Raises DocumentRefused."""
    collection = schema.collections.get(name) if isinstance(name, str) else None
    if collection is None:
        raise DocumentRefused(
            f"{what} is for the collection {short_repr(name)}, which does not exist; "
            f"the collections are {', '.join(schema.collections)}"
        )
    return collection


def _check_length(what: str, text: str, length_max: int) -> None:
    if len(text) > length_max:
        raise DocumentRefused(f"the {what} has {len(text)} characters; the maximum is {length_max}")


def _with_name(
    error: DocumentRefused, what: str, id: object, collection: Collection
) -> DocumentRefused:
    """Return the error with id and collection in its text: log lines of dead letters lack both."""
    return type(error)(f"{what} {short_repr(id)} of {short_repr(collection.name)}: {error}")


def _check_no_other_fields(others: Mapping[object, object]) -> None:
    if others:
        raise DocumentRefused(f"a write has no field {short_repr(next(iter(others)))}")


def version_of(collection: Collection, id: str, document: Mapping[str, object]) -> DocumentVersion:
    """Build the version of a valid document, without `replaced`."""
    texts, values = collection.text_fields, collection.value_fields
    return DocumentVersion(
        collection.name,
        id,
        tuple(_words(field, document.get(field.name)) for field in texts),
        tuple(_value(field, document.get(field.name)) for field in values),
        _CANONICAL.encode(document).encode(),
    )


def deletion(collection: Collection, id: str) -> DocumentVersion:
    """Build the version that deletes a document."""
    texts, values = collection.text_fields, collection.value_fields
    return DocumentVersion(
        collection.name, id, (None,) * len(texts), (None,) * len(values), b"", True
    )


def _words(field: TextField, text: object) -> Words | None:
    return words_of(field.analyser.words(text)) if isinstance(text, str) else None


def _value(field: ValueField, value: object) -> Value | None:
    return None if value is None else value_of(field.kind, value)


def _key(write: DecisionInput) -> tuple[object, ...]:
    """Return the key for `key_by`: the collection and id of the document, or of the watch."""
    return (WATCHED, *write[:2]) if len(write) == 3 else write[0][:2]


def _decide(
    context: Context, write: DecisionInput, document: ValueState[DocumentState]
) -> Iterator[tuple[str, tuple[object, ...]]]:
    """Decide the outcome of a write, given the state after all earlier writes of the document."""
    if len(write) == 3:
        yield WATCHED, write
        return
    encoded, next_replaced, expected, key = write
    collection, id, *_, deleted, _ = encoded
    current_time, replaced, keys = document.get((0, None, ()))
    repeated_time = dict(keys).get(key) if key else None
    if repeated_time is not None:
        yield "repeated" if repeated_time > 0 else "absent", (collection, id, abs(repeated_time))
        return
    if expected is not None and expected != current_time:
        yield "changed", (collection, id, current_time)
        return
    time = context.label[0]
    is_absent = deleted and not current_time
    if key:
        keys = (*keys, (key, -time if is_absent else time))[-KEYS_PER_DOCUMENT:]
    if not deleted:
        document.set((time, next_replaced, keys))
    elif keys:
        document.set((0, None, keys))
    else:
        document.clear()
    if is_absent:
        yield "absent", (collection, id, 0)
    else:
        yield VERSION, (*encoded[:-1], replaced)
