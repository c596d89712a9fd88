"""What a source is, and what it says of a record that cannot be read.

A source gives numbered records. The number is the record's *time*: it becomes the first part of
the labels of everything made from the record, so it has to be the same in every run. A record
that cannot be read therefore keeps its number and comes as a `BadRecord` in its place; whoever
reads decides whether that ends the run (`strict`) or is counted and passed over.

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
    """A record that cannot be read, in the place where it would have come."""

    time: int  # its number
    file: str
    reason: str
    text: str  # how it begins, at most 200 characters; empty if not even that is known
    raw: str = ""  # all of it: JSON, or the text that it is; empty if it is not known
    ends: bool = False  # whether nothing after it in the file can be read

    def as_line(self) -> str:
        """As it stands in a file of dead letters, without the line's end.

        Whoever splits lines, at whatever Unicode calls an end of a line, finds one.
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
        except (ValueError, RecursionError):  # not JSON, nor to be written as it
            line = _line(about)
        return line


def _line(about: dict[str, object]) -> str:
    line = json.dumps(about, ensure_ascii=False, allow_nan=False)
    if line.isascii() or (len(line.splitlines()) == 1 and line.isprintable()):
        return line
    return json.dumps(about, allow_nan=False)


@runtime_checkable
class Source(Protocol):
    """Where a front gets its records: the same records with the same times from any time on."""

    @property
    def name(self) -> str:
        """How errors and progress call it, e.g. the file's name."""
        ...

    def read(self, start: int) -> Iterator[tuple[int, object] | BadRecord]:
        """All records with time >= `start`, with their times, which strictly increase."""
        ...

    def progress(self) -> tuple[int, int] | None:
        """Bytes that the latest `read` has consumed and bytes in all; None if unknown."""
        ...

    def identity(self) -> str:
        """A text that is equal for equal inputs: a state directory belongs to one of them."""
        ...


def strict(found: Iterable[tuple[int, object] | BadRecord]) -> Iterator[tuple[int, object]]:
    """The same records; raises InputError where a bad one stands."""
    for record in found:
        if isinstance(record, BadRecord):
            raise InputError(record.file, record.time, record.reason)
        yield record
