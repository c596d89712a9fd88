"""A source that repeats another one, for runs that are longer than their input.

    >>> from driftline.engine.sources.memory import ListSource
    >>> list(Repeated(ListSource([{"id": "a"}, {"id": "b"}]), 3).read(1))
    [(1, {'id': 'a'}), (2, {'id': 'b'}), (3, {'id': 'a~2'})]

Times keep growing from round to round, and ids stay unique and of their type, so a flow sees new
documents: in round k a text id ends with `~k`, and an integer id is larger by (k - 1) * 2**40.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import count

from driftline.engine.sources.source import BadRecord, Source

ID_STRIDE = 2**40
"""Difference of an integer id from round to round; ids must be smaller. Enough for 2**22 rounds."""


class Repeated:
    """A source's records, round after round, up to the time `documents`.

    Precondition: the source's times are 1, 2, ... The times go on from round to round. Ids stay
    unique and of their type: in round k a text ends with `~k`, and a number is larger by
    (k - 1) * 2**40. Bad records are repeated, too, and have a time.
    """

    def __init__(self, source: Source, documents: int) -> None:
        self.name = f"{source.name}, repeated"
        self._source = source
        self._documents = documents
        self._period: int | None = None  # the source's last time; None until it was reached

    def read(self, start: int) -> Iterator[tuple[int, object] | BadRecord]:
        """All records with time >= `start`. The first call reads a round, to learn its length."""
        start = max(1, start)
        if self._period is None:
            last = 0
            for record in self._source.read(1):
                last = _time(record)
                if last > self._documents:
                    return
                if last >= start:
                    yield record
            self._period = last
            start = max(start, last + 1)
        if self._period:
            yield from self._rounds(start, self._period)

    def _rounds(self, start: int, period: int) -> Iterator[tuple[int, object] | BadRecord]:
        for completed in count((start - 1) // period):
            offset = completed * period
            for record in self._source.read(max(1, start - offset)):
                time = offset + _time(record)
                if time > self._documents:
                    return
                yield self._copy(record, completed, time)

    def _copy(
        self, record: tuple[int, object] | BadRecord, completed: int, time: int
    ) -> tuple[int, object] | BadRecord:
        """A record as it comes after so many completed rounds, with its new time."""
        if isinstance(record, BadRecord):
            return replace(record, time=time)
        _, document = record
        if completed == 0 or not isinstance(document, dict) or "id" not in document:
            return time, document
        name = document["id"]
        if isinstance(name, str):
            return time, {**document, "id": f"{name}~{completed + 1}"}
        if 0 <= name < ID_STRIDE:
            return time, {**document, "id": name + completed * ID_STRIDE}
        reason = f"the id {name} cannot be repeated: it is not in the range from 0 to 2**40"
        return BadRecord(time, self.name, reason, "")

    def progress(self) -> tuple[int, int] | None:
        """None: the size of all rounds is not known beforehand."""
        return None

    def identity(self) -> str:
        """The source's identity, and the number of records."""
        return f"{self._source.identity()}, repeated up to {self._documents}"


def _time(record: tuple[int, object] | BadRecord) -> int:
    return record.time if isinstance(record, BadRecord) else record[0]
