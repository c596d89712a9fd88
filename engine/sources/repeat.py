"""A source again and again, for runs that are longer than their input.

    >>> from driftline.engine.sources.memory import ListSource
    >>> list(Repeated(ListSource([{"id": "a"}, {"id": "b"}]), 3).read(1))
    [(1, {'id': 'a'}), (2, {'id': 'b'}), (3, {'id': 'a~2'})]

Times number on, and ids stay unique and of their type, so that a flow sees new documents: in round
k a text id ends with `~k`, and a number is larger by (k - 1) * 2**40.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import count

from driftline.engine.sources.source import BadRecord, Source

ID_STRIDE = 2**40
"""Distance of a number's copies; numbers must be smaller. 2**22 rounds fit 64 bits."""


class Repeated:
    """A source's records, round after round, up to the time `documents`.

    Times number on. Ids stay unique and of their type: in round k a text ends with `~k`, and a
    number is larger by (k - 1) * 2**40. The source's times have to count from 1. Bad records are
    repeated, too, and keep a number.
    """

    def __init__(self, source: Source, documents: int) -> None:
        self.name = f"{source.name}, repeated"
        self._source = source
        self._documents = documents
        self._period: int | None = None  # the source's last time, once it was reached

    def read(self, start: int) -> Iterator[tuple[int, object] | BadRecord]:
        """All records with time >= `start`; costs one round to learn how long a round is."""
        start = max(1, start)
        if self._period is None:
            last = 0
            for found in self._source.read(1):
                last = _time(found)
                if last > self._documents:
                    return
                if last >= start:
                    yield found
            self._period = last
            start = max(start, last + 1)
        if self._period:
            yield from self._rounds(start, self._period)

    def _rounds(self, start: int, period: int) -> Iterator[tuple[int, object] | BadRecord]:
        for turn in count((start - 1) // period):
            before = turn * period
            for found in self._source.read(max(1, start - before)):
                time = before + _time(found)
                if time > self._documents:
                    return
                yield self._copy(found, turn, time)

    def _copy(
        self, found: tuple[int, object] | BadRecord, turn: int, time: int
    ) -> tuple[int, object] | BadRecord:
        if isinstance(found, BadRecord):
            return replace(found, time=time)
        record = found[1]
        if turn == 0 or not isinstance(record, dict) or "id" not in record:
            return time, record
        name = record["id"]
        if isinstance(name, str):
            return time, {**record, "id": f"{name}~{turn + 1}"}
        if 0 <= name < ID_STRIDE:
            return time, {**record, "id": name + turn * ID_STRIDE}
        reason = f"the id {name} cannot be repeated: it is not in the range from 0 to 2**40"
        return BadRecord(time, self.name, reason, "")

    def progress(self) -> tuple[int, int] | None:
        """Unknown: how many bytes the rounds have in all is not known beforehand."""
        return None

    def identity(self) -> str:
        """The source's, and how many records of it."""
        return f"{self._source.identity()}, repeated up to {self._documents}"


def _time(found: tuple[int, object] | BadRecord) -> int:
    return found.time if isinstance(found, BadRecord) else found[0]
