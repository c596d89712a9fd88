"""Bulks: many writes as requests of a bounded size, each with an answer to each line.

An HTTP client reads no answer before it has sent the whole request. So what is written is divided:
no more is taken from the program than is in one request, and the next is sent when the program has
taken the answers to this one.

Each request has a key of its own, and the service knows a line by it and the line's number. So a
request may be sent again, and nothing is written twice: answers that were given before are skipped.
The service remembers the last few keys of each document: so a request has an id only so often.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from uuid import uuid4

from driftline.index.client.errors import Busy, Invalid, ServiceError, ServiceUnavailable, error_in
from driftline.index.client.results import FailedLine, converted, loads
from driftline.index.documents.answers import Written

LINES_MAX, BYTES_MAX = 1000, 4 << 20
"""Of one request; a larger line is alone."""

_REFUSED = b"null\n"
"""In place of a line that JSON cannot say."""

SAME_ID_MAX = 4
"""Half of `index.documents.writes.KEYS_KEPT`: others may write with keys, too."""


@dataclass(frozen=True, slots=True)
class Delete:
    """In a bulk: delete the document with this id."""

    id: str


Line = Mapping[str, object] | Delete
"""In a bulk: a document, with its "id" among its fields, or a deletion."""

Note = Callable[[Written], Written]


class BulkRequest:
    """One request of a bulk; `note`: is given each answer.

    `bad`: by their numbers, lines that JSON cannot say. In their place there is one that is
    refused, so that each line has its answer.
    """

    def __init__(
        self, lines: list[bytes], visible: bool, note: Note, bad: Mapping[int, FailedLine]
    ) -> None:
        self.content = b"".join(lines)
        self.params: dict[str, str] = {"key": uuid4().hex}
        if visible:
            self.params["wait"] = "visible"
        self._lines = len(lines)
        self._note = note
        self._bad = bad
        self._given = 0
        """Answers that the program has."""
        self._come = 0
        """Answers that have come by this connection."""
        self._rest = b""

    def begin(self) -> None:
        """Begin with a new connection."""
        self._come, self._rest = 0, b""

    def take(self, data: bytes) -> Iterator[Written | FailedLine]:
        """The answers that are whole by now, and new. Raises ServiceError if it has to be sent
        again, or cannot be."""
        *whole, self._rest = (self._rest + data).split(b"\n")
        for line in whole:
            told = loads(line)
            error = error_in(told)
            is_of_all = not (isinstance(told, dict) and "line" in told)
            if error is not None and (is_of_all or isinstance(error, Busy | ServiceUnavailable)):
                raise error
            self._come += 1
            if self._come > self._given:
                self._given = self._come
                told_before = self._bad.get(self._come - 1)
                answer = (
                    self._note(converted(told, Written)) if error is None else _failed(told, error)
                )
                yield told_before or answer

    def end(self) -> None:
        """The connection has ended in good order. Raises Unavailable if answers are missing."""
        if self._come < self._lines:
            text = f"the service has answered {self._come} of {self._lines} lines"
            raise ServiceUnavailable("unavailable", text)


class Gathering:
    """Gathers the lines of a bulk for its requests."""

    def __init__(self, visible: bool, note: Note) -> None:
        self._visible = visible
        self._note = note
        self._lines: list[bytes] = []
        self._bytes = 0
        self._ids: Counter[object] = Counter()
        self._bad: dict[int, FailedLine] = {}

    def add(self, line: Line) -> BulkRequest | None:
        """Add a line. Returns the request of those before it, if there is no room for it."""
        id, data, bad = _encoded(line)
        is_full = (
            len(self._lines) >= LINES_MAX
            or self._bytes + len(data) > BYTES_MAX
            or self._ids[id] >= SAME_ID_MAX
        )
        batch = self.rest() if is_full else None
        if bad is not None:
            self._bad[len(self._lines)] = bad
        self._lines.append(data)
        self._bytes += len(data)
        self._ids[id] += 1
        return batch

    def rest(self) -> BulkRequest | None:
        """The request of all lines that are here."""
        if not self._lines:
            return None
        batch = BulkRequest(self._lines, self._visible, self._note, self._bad)
        self._lines, self._bytes, self._bad = [], 0, {}
        self._ids.clear()
        return batch


def _encoded(line: Line) -> tuple[str, bytes, FailedLine | None]:
    """The id of a line, and what is sent for it; if JSON cannot say the line: why."""
    told: object = {"delete": line.id} if isinstance(line, Delete) else line
    id = ""
    try:
        if not isinstance(told, Mapping):
            text = f"{told!r:.100} is no line of a bulk: a mapping, or Delete(id)"
            raise Invalid("invalid", text)
        id = str(told.get("id", told.get("delete", "")))
        return id, encoded(dict(told)) + b"\n", None
    except Invalid as error:
        return id, _REFUSED, FailedLine(id, error)


def encoded(value: object) -> bytes:
    """A value as JSON; dates are texts. Raises Invalid for what JSON has not."""
    try:
        text = json.dumps(
            value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_told
        )
        return text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise Invalid("invalid", f"this cannot be sent as JSON: {error}") from None


def _told(value: object) -> str:
    if isinstance(value, date):  # a datetime, too
        return value.isoformat()
    raise TypeError(f"{value!r:.100} is a {type(value).__name__}")


def _failed(told: object, error: ServiceError) -> FailedLine:
    match told:
        case {"id": str(id)}:
            return FailedLine(id, error)
    return FailedLine("", error)
