"""The application of any flow: records come in, its outputs and their latest values are read."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.responses import Response
from starlette.types import ASGIApp

from driftline.serve.errors import Refused
from driftline.serve.gateway.backend import Backend
from driftline.serve.http.application import build
from driftline.serve.http.content.jsons import dumps, loads
from driftline.serve.http.content.parameters import TOKEN
from driftline.serve.http.operations import Body, Call, Operation, json_answer
from driftline.serve.http.reads.changes import journal_operation
from driftline.serve.http.reads.times import now
from driftline.serve.http.reads.values import value_operations
from driftline.serve.http.settings import Settings
from driftline.serve.views.tokens import token_of

READY_S = 2.0
"""So long the views may take to have caught up."""

TEXT = (
    "A flow whose outputs are in one order. A record answers with a label; `after=LABEL` reads "
    "what came of it, `at=T` repeats a read exactly, `from=T` resumes a stream."
)


def flow_application(
    backend: Backend, sinks: Sequence[str], settings: Settings | None = None
) -> ASGIApp:
    """The application; there is a key-value view of each of these sinks."""
    settings = settings or Settings()

    async def ready() -> None:
        for sink in sinks:
            question = {"what": "items", "prefix": "", "limit": 0}
            await backend.ask(sink, question, after=now(backend), within_s=READY_S)

    operations = [
        record_operation(backend),
        *value_operations(backend, sinks),
        journal_operation(backend, sinks),
    ]
    return build("Driftline flow", TEXT, operations, backend, ready, settings)


def record_operation(backend: Backend) -> Operation:
    """`POST /records`: one record for the flow's source."""

    async def does(call: Call) -> Response:
        record = loads(await call.body())
        if record is None:
            raise Refused("invalid", "null is no record")
        time = await backend.write(record)
        return json_answer(dumps({"label": token_of(time + 1)}))

    return Operation(
        "POST",
        "/records",
        does,
        "record",
        "Hand a record to the flow; the answer comes when it is durable.",
        right="write",
        body=Body({}, example={"text": "a record"}),
        answer=Body(
            {"type": "object", "required": ["label"], "properties": {"label": TOKEN}},
        ),
        refusals=(408, 413, 507),
        tag="records",
    )
