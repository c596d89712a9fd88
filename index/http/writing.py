"""Writes of documents, one by one and in bulk.

The gateway validates a write before it passes it to the flow, so the flow accepts all writes of the
gateway. It answers once the write is durable. For a write with a condition or a key, it also waits
for the outcome.

A request to `POST /documents:bulk` has one write per line; the answer has a line for each write.
Reading lines, writing documents and sending answers overlap. The buffers between these steps are
bounded, so a client that does not read its answers slows down only its own request. The gateway
passes on writes in line order, so the labels of new writes ascend. The answer to an invalid line is
an error; other lines are unaffected.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress

import msgspec
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from driftline.index.documents.answers import Written
from driftline.index.documents.schema import Collection, DocumentRefused, DocumentTooLarge
from driftline.index.documents.versions import VersionSummary, decode_summary
from driftline.index.documents.writes import (
    KEY_LENGTH_MAX,
    VERSION,
    NotWritten,
    Outcome,
    Write,
    outcome_of,
)
from driftline.index.http.context import ID, Index, json_of
from driftline.index.http.schemas import (
    BULK,
    BULK_ANSWER,
    DOCUMENT,
    NDJSON,
    WRITTEN,
    document_schema,
)
from driftline.serve.errors import ApiError
from driftline.serve.http.content import BodyReader, Json, dumps, error_body, loads
from driftline.serve.http.operations import REQUEST_LOG_KEY, Body, Call, Operation, RequestLog
from driftline.serve.http.parameters import LABEL_REF, Parameter, choice, text_up_to
from driftline.serve.views.tokens import time_of, token_of

ANSWERS_BYTES_MAX = 8 << 20
"""Largest size of buffered answers, for clients that read nothing before they have sent all lines.

This is enough for some 100,000 answers.
"""

SEND_AFTER_S = 0.05
"""A client that sends nothing for this many seconds may be waiting for answers."""

SERVICE_ENDS = ApiError(
    "unavailable",
    "the service is stopping: this line and later ones may or may not be stored; send them again",
)

NO_LABEL = "none"


def _condition(text: str) -> int:
    """Parse `if_label=`; return the label time that the current version must have.

    0: there must be no document. Raises ValueError, BadToken.
    """
    if text == NO_LABEL:
        return 0
    time = time_of(text)
    if time < 2:
        raise ValueError(
            f"no document has the label {text}; to require that there is no document, use "
            f"{NO_LABEL!r}"
        )
    return time - 1


_read_key = text_up_to(KEY_LENGTH_MAX)


def _key(text: str) -> str:
    """Parse `key=`. Raises ValueError for an empty key, which may come from an unset variable."""
    if not text:
        raise ValueError("it is empty: choose a key for this write, or leave `key` out")
    return _read_key(text)


IF_LABEL = Parameter[int | None](
    "if_label",
    _condition,
    None,
    "Write only if the current document has this label; `none`: only if there is no document.",
    {"anyOf": [LABEL_REF, {"const": NO_LABEL}]},
)
KEY = Parameter[str](
    "key",
    _key,
    "",
    "Idempotency key: a write that is sent again with the same key is applied once.",
    {"type": "string", "minLength": 1, "maxLength": KEY_LENGTH_MAX},
)
WAIT = Parameter[str](
    "wait",
    choice("durable", "visible"),
    "durable",
    "When to answer: once the write is durable, or once reads can also see it.",
    {"type": "string", "enum": ["durable", "visible"], "default": "durable"},
)


def check_document(
    collection: Collection, id: str, document: object
) -> Mapping[str, object] | None:
    """Validate a document to write, or a deletion (None), and return it. Raises ApiError."""
    try:
        collection.check(id, {} if document is None else document)
    except DocumentRefused as error:
        code = "large" if isinstance(error, DocumentTooLarge) else "invalid"
        raise ApiError(code, str(error), {"field": error.field} if error.field else {}) from None
    assert document is None or isinstance(document, dict)
    return document


async def write_document(index: Index, write: Write, *, bulk: bool = False) -> Written:
    """Write or delete a document and return the answer. Raises ApiError.

    `bulk`: whether the write belongs to a bulk request.
    """
    time = await index.backend.write(write.record(), bulk=bulk)
    answer = Written(write.id, token_of(time + 1))
    if write.expected is None and not write.key:
        return answer
    for item in await index.backend.wait_for_outputs(time, index.settings.timeout_s):
        match outcome(item.value):
            case NotWritten(reason="changed", time=current):
                label = token_of(current + 1) if current else None
                text = f"the label is {label}" if label else "there is no such document"
                raise ApiError("changed", f"the condition does not hold: {text}", {"label": label})
            case NotWritten(reason="repeated", time=earlier):
                return Written(write.id, token_of(earlier + 1), repeated=True)
            case NotWritten(reason="absent", time=0):
                return Written(write.id, answer.label, absent=True)
            case NotWritten(reason="absent", time=earlier):
                return Written(write.id, token_of(earlier + 1), repeated=True, absent=True)
    return answer


def outcome(payload: object) -> Outcome | VersionSummary:
    """Decode the outcome of a write; a version becomes a summary. Raises MalformedMessage."""
    if isinstance(payload, tuple) and len(payload) == 2 and payload[0] == VERSION:
        return decode_summary(payload[1])
    return outcome_of(payload)


def write_operations(index: Index) -> list[Operation]:
    """Return `PUT` and `DELETE /documents/{id}`."""

    async def put(call: Call) -> Response:
        collection = index.collection(call)
        document = loads(await call.body())
        if document is None:
            raise ApiError("invalid", "null is not a document; a document is a JSON object")
        return await write(call, collection, document)

    async def delete(call: Call) -> Response:
        return await write(call, index.collection(call), None)

    async def write(call: Call, collection: Collection, document: object) -> Response:
        content = check_document(collection, call[ID], document)
        checked_write = Write(collection.name, call[ID], content, call[IF_LABEL], call[KEY])
        answer = await write_document(index, checked_write)
        if call[WAIT] == "visible":
            await index.wait_visible(collection, time_of(answer.label), index.settings.timeout_s)
        return json_of(answer)

    default = index.schema.collections.get(index.default)
    body_schema = DOCUMENT if default is None else document_schema(default)
    parameters = ID, IF_LABEL, KEY, WAIT
    path = "/documents/{id:path}"
    error_statuses = 404, 408, 409, 503, 507  # HTTP statuses
    return [
        Operation(
            "PUT",
            path,
            put,
            "put_document",
            "Create or replace a document.",
            parameters,
            "write",
            Body(body_schema, example={"title": "Tea", "text": "Tea is made of leaves."}),
            WRITTEN,
            (*error_statuses, 413),
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
            error_statuses=error_statuses,
            tag="documents",
        ),
    ]


class Bulk:
    """Response to a bulk request, as an ASGI application.

    `key`: prefix of the writes' idempotency keys, "" for writes without keys; `visible`: whether to
    wait until reads can see the writes.
    """

    def __init__(
        self, index: Index, collection: Collection, reader: BodyReader, key: str, visible: bool
    ) -> None:
        self._index = index
        self._reader = reader
        self._collection = collection
        self._key = key
        self._visible = visible
        self._settings = index.settings
        self._in_progress: asyncio.Queue[tuple[int, asyncio.Task[bytes] | bytes] | None] = (
            asyncio.Queue(index.settings.window)
        )
        """In line order: (number of a line, its answer or the task that returns the answer).

        None marks the end.
        """
        self._answered = 0
        """Number of the last line whose answer was collected."""
        self._writes: set[asyncio.Task[bytes]] = set()
        """Writes in progress."""
        self._last_time = 0
        """Largest label in an answer, as a time."""
        self._answers = bytearray()
        """Collected answers that are not sent yet."""
        self._is_complete = False
        """Whether all answers were collected."""
        self._body_is_read = asyncio.Event()
        self._send_due = asyncio.Event()
        """Set when there are answers to send, or when all answers were collected."""
        self._sent = asyncio.Event()
        """Set after each send of answers."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = {"content-type": NDJSON, "cache-control": "no-store", "x-accel-buffering": "no"}
        pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": 200, "headers": pairs})
        tasks = [
            asyncio.ensure_future(work)
            for work in (self._read(scope[REQUEST_LOG_KEY]), self._collect(), self._send(send))
        ]
        is_shutdown = False
        try:
            for task in asyncio.as_completed(tasks):
                await task
        except asyncio.CancelledError:  # only a shutdown cancels this request
            is_shutdown = True
        finally:
            in_progress = [*tasks, *self._writes]
            for each in in_progress:
                each.cancel()
            await asyncio.gather(*in_progress, return_exceptions=True)
        if is_shutdown and tasks[-1].cancelled():
            rest = bytes(self._answers) + _problem(self._answered + 1, "", SERVICE_ENDS)
            with suppress(TimeoutError):
                async with asyncio.timeout(0):  # send only if this does not block
                    await send(_part(rest, more=False))

    async def _read(self, request_log: RequestLog) -> None:
        """Read the lines and start their writes."""
        number = 0
        settings = self._settings
        try:
            async for line in read_lines(self._reader, settings.body_bytes_max):
                number += 1
                if line is None:
                    text = f"the line has more than {settings.body_bytes_max} bytes"
                    problem = _problem(number, "", ApiError("large", text))
                    await self._in_progress.put((number, problem))
                elif line.strip():
                    await self._in_progress.put((number, self._begin_write(number, line)))
                    await asyncio.sleep(0)  # yield to other tasks
        except ApiError as error:
            request_log.code = error.code
            await self._in_progress.put((number + 1, _problem(number + 1, "", error)))
        self._body_is_read.set()
        await self._in_progress.put(None)

    def _begin_write(self, number: int, line: bytes) -> asyncio.Task[bytes] | bytes:
        """Start the write of a line; return a task that returns the answer, or an error line."""
        id = ""
        try:
            id, document = _parse_line(loads(line))
            content = check_document(self._collection, id, document)
        except ApiError as error:
            return _problem(number, id, error)
        key = f"{self._key}/{number}" if self._key else ""
        write = Write(self._collection.name, id, content, None, key)
        task = asyncio.ensure_future(self._write(number, write))
        self._writes.add(task)
        task.add_done_callback(self._writes.discard)
        return task

    async def _write(self, number: int, write: Write) -> bytes:
        try:
            answer = await write_document(self._index, write, bulk=True)
        except ApiError as error:
            return _problem(number, write.id, error)
        self._last_time = max(self._last_time, time_of(answer.label))
        return msgspec.json.encode(answer) + b"\n"

    async def _collect(self) -> None:
        """Collect the answers in the order of lines."""
        while (entry := await self._in_progress.get()) is not None:
            number, answer = entry
            self._answers += answer if isinstance(answer, bytes) else await answer
            self._answered = number
            self._send_due.set()
            while len(self._answers) > ANSWERS_BYTES_MAX:
                self._sent.clear()
                await self._sent.wait()
        if self._visible and self._last_time:
            try:
                await self._index.wait_visible(
                    self._collection, self._last_time, self._settings.timeout_s
                )
            except ApiError as error:
                self._answers += dumps(error_body(error)) + b"\n"
        self._is_complete = True
        self._send_due.set()

    def _answers_may_wait(self) -> bool:
        """Return whether the client still sends lines, and the buffer of answers is not full."""
        is_read, is_full = self._body_is_read.is_set(), len(self._answers) > ANSWERS_BYTES_MAX
        return not (is_read or is_full or self._reader.waits_s >= SEND_AFTER_S)

    async def _send(self, send: Send) -> None:
        """Send the answers.

        While the client sends lines, answers wait, up to `ANSWERS_BYTES_MAX`: some clients send all
        lines before they read an answer, and the server closes a connection whose answers stay
        unread.
        """
        while not self._is_complete or self._answers:
            await self._send_due.wait()
            while self._answers_may_wait():
                with suppress(TimeoutError):
                    async with asyncio.timeout(SEND_AFTER_S):
                        await self._body_is_read.wait()
            self._send_due.clear()
            if data := bytes(self._answers):
                await send(_part(data))
                # Not earlier: if `send` is cancelled, `__call__` sends these answers.
                del self._answers[: len(data)]
            self._sent.set()
        await send(_part(b"", more=False))


def _part(data: bytes, more: bool = True) -> Message:
    return {"type": "http.response.body", "body": data, "more_body": more}


LINES_WITHOUT_PAUSE = 500
"""Number of lines of a body that are read before other requests get a turn."""


async def read_lines(reader: BodyReader, line_bytes_max: int) -> AsyncIterator[bytes | None]:
    """Yield the lines of a body as they arrive; None for a line of more than `line_bytes_max`.

    Raises ApiError if the body is damaged, or if it or one of its lines arrives too slowly;
    ClientLeft if the client disconnects.
    """
    line = bytearray()
    is_skipping = False  # whether to skip the rest of a line that is too long
    async for part in reader.parts():
        *ends, beginning = part.split(b"\n")  # ends of lines, and the beginning of the next one
        if ends:
            reader.reset_rate()
        for number, end in enumerate(ends, 1):
            if number % LINES_WITHOUT_PAUSE == 0:
                await asyncio.sleep(0)  # yield: a compressed part may have many lines
            line += end
            if is_skipping:
                is_skipping = False
            elif len(line) > line_bytes_max:
                yield None
            else:
                yield bytes(line)
            line.clear()
        if not is_skipping:
            line += beginning
            if len(line) > line_bytes_max:
                is_skipping = True
                line.clear()
                yield None
    if line:
        yield bytes(line)


_LINE_FORMS = '{"id": ..., and the fields} or {"delete": id}'


def _explain_invalid(line: object) -> str:
    """Return why a line is not a write."""
    match line:
        case {"delete": _}:
            return 'a line with "delete" has no other fields'
        case {**_fields}:
            return 'this object has neither "id" nor "delete"'
        case [*_]:
            return "send a list of documents as several lines, without [ and ]"
    return "this is not a JSON object"


def _parse_line(line: object) -> tuple[str, object]:
    """Return the id and the document of a line; the document is None for a deletion.

    The document is not validated. Raises ApiError.
    """
    document: object = None
    match line:
        case {"delete": id, **rest} if not rest:
            pass
        case {"id": id, **fields}:
            document = fields
        case _:
            problem = _explain_invalid(line)
            raise ApiError("invalid", f"a line has the form {_LINE_FORMS}: {problem}")
    if not isinstance(id, str):
        raise ApiError("invalid", "the id is not a text", {"field": "id"})
    try:
        id.encode()
    except UnicodeEncodeError:  # the answer could not contain this id
        raise ApiError("invalid", "the id has an unpaired surrogate", {"field": "id"}) from None
    return id, document


def _problem(number: int, id: str, error: ApiError) -> bytes:
    """Return the answer line for a line that failed."""
    result: Mapping[str, Json] = {"line": number, **({"id": id} if id else {}), **error_body(error)}
    return dumps(result) + b"\n"


def bulk_operation(index: Index) -> Operation:
    """Return `POST /documents:bulk`."""

    async def bulk(call: Call) -> Bulk:
        collection = index.collection(call)
        return Bulk(index, collection, call.reader(), call[KEY], call[WAIT] == "visible")

    return Operation(
        "POST",
        "/documents:bulk",
        bulk,
        "bulk",
        "Put and delete many documents: one per line, with an answer per line, in order.",
        (KEY, WAIT),
        "write",
        BULK,
        BULK_ANSWER,
        (404, 408),
        streams=True,
        tag="documents",
    )
