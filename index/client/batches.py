"""Bulk writes: documents and deletions, one per line, with an answer to each line.

The HTTP library returns no part of an answer before it has sent the complete request. Lines are
therefore split into requests of bounded size. The client reads the lines of one request from the
program, sends them, and continues when the program has consumed all answers.

Each request has a unique key, and the service identifies a line by this key and the line's number.
A request can therefore be resent without duplicate writes; answers already returned are skipped.
The service stores only the last few keys of each document, so a request contains each id at most
`SAME_ID_MAX` times.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from datetime import date
from uuid import uuid4

from msgspec import Struct

from driftline.index.client.errors import (
    Busy,
    Invalid,
    ServiceError,
    ServiceUnavailable,
    parse_error,
)
from driftline.index.client.results import FailedLine, convert, loads
from driftline.index.documents.answers import Written

LINES_MAX, BYTES_MAX = 1000, 4 << 20
"""Limits of the lines and bytes of one request; a line above `BYTES_MAX` is sent alone."""

_INVALID_LINE = b"null\n"
"""Line that the service rejects, sent in place of a line that cannot be encoded."""

SAME_ID_MAX = 4
"""Largest number of lines with the same id in a request: half of
`index.documents.writes.KEYS_PER_DOCUMENT`, since other clients may also write with keys."""


class Delete(Struct, frozen=True):
    """Line of a bulk: delete the document with this id."""

    id: str


Line = Mapping[str, object] | Delete
"""Line of a bulk: a document, with its "id" among its fields, or a deletion."""

WrittenHook = Callable[[Written], Written]
"""Function that receives the answer to a successful write, and returns it."""


class BulkRequest:
    """One request of a bulk.

    `lines`: encoded lines; `visible`: whether the service waits until reads can see the writes;
    `note`: called with the answer to each successful write; `failed_lines`: index of a line that
    cannot be encoded as JSON -> its result. `lines` has `_INVALID_LINE` in its place, so that each
    line has an answer.
    """

    def __init__(
        self,
        lines: list[bytes],
        visible: bool,
        note: WrittenHook,
        failed_lines: Mapping[int, FailedLine],
    ) -> None:
        self.content = b"".join(lines)
        self.params: dict[str, str] = {"key": uuid4().hex}
        if visible:
            self.params["wait"] = "visible"
        self._line_count = len(lines)
        self._note = note
        self._failed_lines = failed_lines
        self._returned = 0
        """Number of answers returned to the program."""
        self._received = 0
        """Number of answers received on this connection."""
        self._partial = b""

    def reset(self) -> None:
        """Reset for a new connection."""
        self._received, self._partial = 0, b""

    def feed(self, data: bytes) -> Iterator[Written | FailedLine]:
        """Yield the answers that `data` completes, except those that were returned before.

        Raises ServiceError if the request failed; the caller decides whether to resend it.
        """
        *complete, self._partial = (self._partial + data).split(b"\n")
        for line in complete:
            reply = loads(line)
            error = parse_error(reply)
            has_line = isinstance(reply, dict) and "line" in reply
            if error is not None and (not has_line or isinstance(error, Busy | ServiceUnavailable)):
                raise error
            self._received += 1
            if self._received > self._returned:
                self._returned = self._received
                encoding_failure = self._failed_lines.get(self._received - 1)
                answer = (
                    self._note(convert(reply, Written))
                    if error is None
                    else _failed_line(reply, error)
                )
                yield encoding_failure or answer

    def end(self) -> None:
        """Check a complete response. Raises ServiceUnavailable if it lacks answers to lines."""
        if self._received < self._line_count:
            text = f"the service answered only {self._received} of {self._line_count} lines"
            raise ServiceUnavailable("unavailable", text)


class BulkRequestBuilder:
    """Builder of requests from the lines of a bulk; the arguments are those of `BulkRequest`."""

    def __init__(self, visible: bool, note: WrittenHook) -> None:
        self._visible = visible
        self._note = note
        self._lines: list[bytes] = []
        self._bytes = 0
        self._ids: Counter[object] = Counter()
        self._failed_lines: dict[int, FailedLine] = {}

    def add(self, line: Line) -> BulkRequest | None:
        """Add a line. If it does not fit, return a request with the previous lines."""
        id, data, failure = _encode_line(line)
        is_full = (
            len(self._lines) >= LINES_MAX
            or self._bytes + len(data) > BYTES_MAX
            or self._ids[id] >= SAME_ID_MAX
        )
        request = self.flush() if is_full else None
        if failure is not None:
            self._failed_lines[len(self._lines)] = failure
        self._lines.append(data)
        self._bytes += len(data)
        self._ids[id] += 1
        return request

    def flush(self) -> BulkRequest | None:
        """Return a request with all pending lines; None if there are none."""
        if not self._lines:
            return None
        request = BulkRequest(self._lines, self._visible, self._note, self._failed_lines)
        self._lines, self._bytes, self._failed_lines = [], 0, {}
        self._ids.clear()
        return request


def _encode_line(line: Line) -> tuple[str, bytes, FailedLine | None]:
    """Return the id and bytes of a line.

    If the line cannot be encoded as JSON, return `_INVALID_LINE` and the line's result.
    """
    content: object = {"delete": line.id} if isinstance(line, Delete) else line
    id = ""
    try:
        if not isinstance(content, Mapping):
            text = f"{content!r:.100} is not a line of a bulk; use a mapping or Delete(id)"
            raise Invalid("invalid", text)
        id = str(content.get("id", content.get("delete", "")))
        return id, encode_json(dict(content)) + b"\n", None
    except Invalid as error:
        return id, _INVALID_LINE, FailedLine(id, error)


def encode_json(value: object) -> bytes:
    """Encode a value as JSON; dates become ISO 8601 strings.

    Raises Invalid for other values that JSON does not support.
    """
    try:
        text = json.dumps(
            value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_json_default
        )
        return text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise Invalid("invalid", f"this cannot be sent as JSON: {error}") from None


def _json_default(value: object) -> str:
    if isinstance(value, date):  # or a datetime, its subclass
        return value.isoformat()
    raise TypeError(f"{value!r:.100} is a {type(value).__name__}")


def _failed_line(answer: object, error: ServiceError) -> FailedLine:
    match answer:
        case {"id": str(id)}:
            return FailedLine(id, error)
    return FailedLine("", error)
