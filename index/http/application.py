"""HTTP application of an index service."""

from __future__ import annotations

from collections.abc import Iterable

from starlette.responses import Response
from starlette.routing import BaseRoute
from starlette.types import ASGIApp

from driftline.index.documents import answers
from driftline.index.documents.answers import CollectionDescription, FieldDescription
from driftline.index.documents.schema import Collection, Schema, StoredField, TextField
from driftline.index.http.context import COLLECTION, Index, json_of
from driftline.index.http.events import change_operation, watch_operations
from driftline.index.http.reading import read_operations
from driftline.index.http.schemas import COLLECTIONS
from driftline.index.http.writing import bulk_operation, write_operations
from driftline.serve.gateway.backend import Backend
from driftline.serve.http.application import build
from driftline.serve.http.operations import Call, HttpSettings, Operation

DESCRIPTION = (
    "A search index. The answer to a write has a label: the position of the write in the order of "
    "all writes. `after=LABEL` makes a read include that write; `at=T` repeats an earlier read "
    "exactly, where T is the `at` of its answer; `from=T` resumes a stream."
)

FIGURES = {
    "documents": "Documents of a shard.",
    "versions": "Versions of documents in the shard, also of deleted documents.",
    "tail_versions": "Versions that are in memory, and not yet in a segment file.",
    "segments": "Segment files of the shard.",
    "segment_bytes": "Total size of the segment files, in bytes.",
    "postings": "Postings in segments.",
    "postings_bytes": "Bytes of these postings, with positions.",
    "bytes_per_posting": "Bytes of a posting in segments.",
    "bytes_per_posting_without_positions": "Bytes of a posting in segments, without positions.",
    "watches": "Watches; each searcher has all of them.",
    "watches_without_anchor": "Watches without an anchor, which are evaluated for every version.",
    "watch_events": "Retained events of watches.",
}
"""Descriptions of the figures of a searcher, by name."""

READY_S = 2.0
"""Timeout of the readiness check per collection, in seconds."""


def application(
    backend: Backend,
    schema: Schema,
    settings: HttpSettings | None = None,
    pages: Iterable[BaseRoute] = (),
) -> ASGIApp:
    """Build the application. `pages`: further routes, such as the web page."""
    settings = settings or HttpSettings()
    index = Index(backend, schema, settings)
    unprefixed = operations(index)

    async def ready() -> None:
        for collection in schema.collections.values():
            await index.wait_visible(collection, index.newest, READY_S)

    prefixed = [each.prefixed("/collections/{collection}", COLLECTION) for each in unprefixed]
    routes = [*unprefixed, *prefixed, _collections(schema)]
    return build("Driftline index", DESCRIPTION, routes, backend, ready, settings, pages, FIGURES)


def operations(index: Index) -> list[Operation]:
    """Return the operations on one collection, without a path prefix."""
    return [
        *read_operations(index),
        *write_operations(index),
        bulk_operation(index),
        change_operation(index),
        *watch_operations(index),
    ]


def _collections(schema: Schema) -> Operation:
    listing = answers.Collections(list(map(_describe, schema.collections.values())))

    async def handle(call: Call) -> Response:
        return json_of(listing)

    text = "The collections and their fields."
    return Operation("GET", "/collections", handle, "collections", text, answer=COLLECTIONS)


def _describe(collection: Collection) -> CollectionDescription:
    fields = []
    for field in collection.fields:
        match field:
            case TextField():
                analyser = field.analyser.name
                fields.append(FieldDescription(field.name, "text", analyser, field.weight))
            case StoredField():
                fields.append(FieldDescription(field.name, "stored"))
            case _:
                fields.append(FieldDescription(field.name, str(field.kind)))
    return CollectionDescription(collection.name, collection.others, fields)
