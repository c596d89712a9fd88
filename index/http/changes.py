"""`GET /changes`: what becomes of the documents of a collection, as server-sent events."""

from __future__ import annotations

import json
from collections.abc import Sequence

from driftline.engine.wire.bundles import Item
from driftline.index.documents.schema import Collection
from driftline.index.documents.versions import Told
from driftline.index.http.about import Index
from driftline.index.http.shapes import CHANGES
from driftline.index.http.writing import outcome
from driftline.serve.http.content.jsons import Json
from driftline.serve.http.content.parameters import FROM, LAST_EVENT_ID
from driftline.serve.http.content.streams import Streamed
from driftline.serve.http.operations import Call, Operation
from driftline.serve.http.reads.changes import changes, since_of, streamed


def change_operation(index: Index) -> Operation:
    """`GET /changes`."""

    async def does(call: Call) -> Streamed:
        collection = index.collection(call)
        since = since_of(call, index.backend)

        def told(items: Sequence[Item]) -> dict[str, Json] | None:
            return change(collection, items)

        parts = changes(index.backend, since, told, call.settings.heartbeat_s)
        return streamed(parts, call)

    return Operation(
        "GET",
        "/changes",
        does,
        "changes",
        "Each new version of a document, in order, as server-sent events.",
        (FROM, LAST_EVENT_ID),
        answer=CHANGES,
        refusals=(404, 410),
        streams=True,
        tag="changes",
    )


def change(collection: Collection, items: Sequence[Item]) -> dict[str, Json] | None:
    """What is told of the outputs of one time; there is one, as the flow has one source."""
    for item in items:
        if item.sink < 0:
            continue  # a dead letter: a producer has sent something that is no write
        found = outcome(item.value)
        if isinstance(found, Told) and found.collection == collection.name:
            if found.deleted:
                return {"id": found.id, "deleted": True}
            return {"id": found.id, "document": json.loads(found.stored)}
    return None
