"""Sources, and records that cannot be read.

A source gives numbered records. The number is the record's *time*: it becomes the first part of
the labels of all elements made from the record, so it has to be the same in every run. A record
that cannot be read therefore keeps its number, and comes as a `BadRecord`. The reader decides
whether a bad record ends the run (`strict`) or is counted and skipped.

    >>> from driftline.engine.sources.memory import ListSource
    >>> list(ListSource(["a", "b", "c"]).read(2))
    [(2, 'b'), (3, 'c')]
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from driftline.engine.errors import InputError


@dataclass(frozen=True)
class BadRecord:
    """A record that cannot be read, in the place of the record."""

    time: int
    """Its number."""
    file: str
    """Where it is, as errors name it."""
    reason: str
    """Why it cannot be read."""
    text: str
    """How it begins, at most 200 characters; empty if not even that is known."""
    raw: str = ""
    """All of it: JSON, or the text that it is; empty if it is not known."""
    ends: bool = False
    """Whether nothing after it in the file can be read."""

    def as_line(self) -> str:
        """The record as a line of a file of dead letters, without the line's end.

        The line contains none of the characters at which Unicode ends a line.
        """
        about: dict[str, object] = {
            "record": self.time,
            "file": self.file,
            "reason": self.reason,
            "value": self.raw or self.text,
        }
        try:
            value = json.loads(self.raw)
            line = _line({**about, "value": value} if isinstance(value, dict) else about)
        except (ValueError, RecursionError):  # cannot be read as JSON, or not written as JSON
            line = _line(about)
        return line


def _line(about: dict[str, object]) -> str:
    line = json.dumps(about, ensure_ascii=False, allow_nan=False)
    if line.isascii() or (len(line.splitlines()) == 1 and line.isprintable()):
        return line
    return json.dumps(about, allow_nan=False)


def time_of(record: tuple[int, object] | BadRecord) -> int:
    """The number of a record."""
    return record.time if isinstance(record, BadRecord) else record[0]


@runtime_checkable
class Source(Protocol):
    """Gives a front its records: each `read` gives the same records with the same times."""

    @property
    def name(self) -> str:
        """The name in errors and in progress reports, for example a file's name."""
        ...

    def read(self, start: int) -> Iterator[tuple[int, object] | BadRecord]:
        """All records from a time on.

        May be called any number of times: after a failure, with an earlier time again.

        Args:
            start: The time of the first record that is wanted; there may be none with that time.

        Yields:
            (time, record) with growing times, the record of the types that can travel; a BadRecord
            in the place of one that cannot be read.

        Raises:
            Unavailable: If the input is not to be had.
            InputError: Where there is no going on.
        """
        ...

    def progress(self) -> tuple[int, int] | None:
        """(bytes that the latest `read` has consumed, bytes in all); None if unknown."""
        ...

    def identity(self) -> str:
        """A text that is equal for equal inputs: a state directory belongs to one of them.

        It should not say where the input is, which may be moved. That of a file says nothing of its
        records: those that a run has used are compared by themselves, the others may change.
        """
        ...


def strict(records: Iterable[tuple[int, object] | BadRecord]) -> Iterator[tuple[int, object]]:
    """The same records; raises InputError at a bad one."""
    for record in records:
        if isinstance(record, BadRecord):
            raise InputError(record.file, record.time, record.reason)
        yield record
