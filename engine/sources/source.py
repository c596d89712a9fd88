"""Sources, and records that cannot be read.

A source yields numbered records. The number is the record's *time*: it becomes the first part of
the labels of all elements made from the record, so it has to be the same in every run. A record
that cannot be read therefore keeps its number, and becomes a `BadRecord`. The caller of `read`
decides whether a bad record ends the run (`strict`), or is passed on to be counted and skipped
(`lenient`). If an input breaks off, like a truncated archive, the numbers of later records are
unknown. Then the last record is a BadRecord that always ends the run (`BadRecord.ends_input`).

    >>> from driftline.engine.sources.memory import ListSource
    >>> list(ListSource(["a", "b", "c"]).read(2))
    [(2, 'b'), (3, 'c')]

A *live* source receives records while the flow runs (`RetainedSource`).
"""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from operator import itemgetter
from typing import Protocol, runtime_checkable

from msgspec import Struct

from driftline.engine.errors import InputError
from driftline.engine.labels import INFINITY


class BadRecord(Struct, frozen=True):
    """Replacement for a record that cannot be read."""

    time: int
    """The record's number."""
    file: str
    """Name of the file or the source, for errors."""
    reason: str
    """Why it cannot be read."""
    text: str
    """The first characters of the record, at most 200; empty if unknown."""
    raw: str = ""
    """The whole record, as JSON or text; empty if unknown."""
    ends_input: bool = False
    """Whether the input breaks off here. Such a record always ends a run."""

    def error(self) -> InputError:
        """Return the error with which this record ends a run."""
        return InputError(self.file, self.time, self.reason)

    def as_line(self) -> str:
        """Return the record as a line of JSON for a file of bad records, without a newline.

        The line contains none of the characters at which Unicode ends a line.
        """
        fields: dict[str, object] = {
            "record": self.time,
            "file": self.file,
            "reason": self.reason,
            "value": self.raw or self.text,
        }
        try:
            value = json.loads(self.raw)
            line = _line({**fields, "value": value} if isinstance(value, dict) else fields)
        except (ValueError, RecursionError):  # not valid JSON, or not representable as JSON
            line = _line(fields)
        return line


def _line(fields: dict[str, object]) -> str:
    line = json.dumps(fields, ensure_ascii=False, allow_nan=False)
    if line.isascii() or (len(line.splitlines()) == 1 and line.isprintable()):
        return line
    return json.dumps(fields, allow_nan=False)


def time_of(record: tuple[int, object] | BadRecord) -> int:
    """Return the time of a record."""
    return record.time if isinstance(record, BadRecord) else record[0]


@runtime_checkable
class Source(Protocol):
    """Source of a front's records: each `read` yields the same records with the same times."""

    @property
    def name(self) -> str:
        """The name in errors and in progress reports, for example a file's name."""
        ...

    def read(self, start: int) -> Iterator[tuple[int, object] | BadRecord]:
        """Yield all records from a time on.

        May be called any number of times, also with an earlier time after a failure.

        Args:
            start: The smallest time to yield. There may be no record with exactly this time.

        Yields:
            (time, record) with increasing times, where the record has types of the wire format; a
            BadRecord in place of a record that cannot be read.

        Raises:
            Unavailable: If the input is not available.
            InputError: Where reading cannot continue.
        """
        ...

    def progress(self) -> tuple[int, int] | None:
        """Return (bytes that the latest `read` has consumed, total bytes); None if unknown."""
        ...

    def identity(self) -> str:
        """Return a text that identifies the input; a state directory belongs to one identity.

        The text should not contain the location of the input, which may change. The identity of a
        file does not depend on its records, since records that no run has used may change.
        `VerifiedSource` checks the records that a run has used.
        """
        ...


def strict(records: Iterable[tuple[int, object] | BadRecord]) -> Iterator[tuple[int, object]]:
    """Yield the records; raise InputError at a bad one."""
    for record in records:
        if isinstance(record, BadRecord):
            raise record.error()
        yield record


def lenient(
    records: Iterable[tuple[int, object] | BadRecord],
) -> Iterator[tuple[int, object] | BadRecord]:
    """Yield the records, also bad ones; raise InputError where the input breaks off."""
    for record in records:
        if isinstance(record, BadRecord) and record.ends_input:
            raise record.error()
        yield record


class RetainedSource:
    """Base of live sources, whose records arrive while the flow runs.

    A live source assigns a record its time once, on arrival. It can replay the record with this
    time until `trim` removes the record.
    """

    name = "live"
    """The name in errors and progress reports."""

    durable = INFINITY
    """Records below this time survive any crash."""

    trimmed = 0
    """Records below this time are removed, or will be removed."""

    obstacle = ""
    """Why records cannot be made durable at the moment; "" if they can."""

    def read(self, start: int) -> Iterator[tuple[int, object] | BadRecord | None]:
        """Yield retained records with time >= `start`, then new ones.

        Yields None if there is no record at the moment, and ends when no more records will arrive.
        """
        raise NotImplementedError

    def advance_to(self, time: int) -> int:
        """Assign no times below `time` from now on. Return the smallest time that may still follow.

        If no record arrives, the front calls this once other sources have sent records up to
        `time`. Otherwise an idle source would hold back the frontier.
        """
        raise NotImplementedError

    def stop(self) -> int:
        """Accept no more records in this process. Return a time above all accepted ones.

        The time is finite even if the source has ended. If the front's window of records in flight
        is full, other sources have to pass this time before the front can read the remaining
        records.
        """
        raise NotImplementedError

    def trim(self, time: int) -> None:
        """Allow the source to remove records below this time."""

    def progress(self) -> tuple[int, int] | None:
        """Return None: the total is not known."""
        return None

    def identity(self) -> str:
        """Return the name: the identity of a live input does not depend on its records."""
        return self.name


class QueueSource(RetainedSource):
    """Live source of records that `put` adds in the same process.

    The times of records are 1, 2, ..., without those that `advance_to` skips.
    """

    def __init__(self, name: str = "queue") -> None:
        self.name = name
        self._records: list[tuple[int, object]] = []
        self._next = 1
        self._closed = False

    def put(self, payload: object) -> int:
        """Add a record. Return its time."""
        time = self._next
        self._next += 1
        self._records.append((time, payload))
        return time

    def close(self) -> None:
        """End the source: `read` ends after the records that were added."""
        self._closed = True

    def read(self, start: int) -> Iterator[tuple[int, object] | BadRecord | None]:
        last_time = start - 1
        while True:
            index = bisect_right(self._records, last_time, key=itemgetter(0))
            if index < len(self._records):
                last_time = self._records[index][0]
                yield self._records[index]
            elif self._closed:
                return
            else:
                yield None

    def advance_to(self, time: int) -> int:
        self._next = max(self._next, time)
        return self._next

    def stop(self) -> int:
        return self._next

    def trim(self, time: int) -> None:
        self.trimmed = max(self.trimmed, min(time, self._next))
        del self._records[: bisect_left(self._records, time, key=itemgetter(0))]
