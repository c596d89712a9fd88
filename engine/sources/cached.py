"""A source that keeps the latest records of another one, so a replay need not read them again.

To read a file from some record on, all records before it have to be read, too. A recovery asks for
records that were read a moment ago: these come from memory.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterator
from operator import itemgetter

from driftline.engine.sources.source import BadRecord, Source

KEPT_MAX = 100_000
"""How many records are kept at most."""

Record = tuple[int, object] | BadRecord


class CachedSource:
    """Another source, with its latest records in memory. Only the latest `read` may be used."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._kept: deque[tuple[int, Record]] = deque(maxlen=KEPT_MAX)
        self._from: int | None = None
        """All records from this time to the last one read are kept; None before the first read."""
        self._rest: Iterator[Record] = iter(())
        """The records that were not read yet."""

    @property
    def name(self) -> str:
        return self._source.name

    def read(self, start: int) -> Iterator[Record]:
        """Records with time >= `start`. Iterators of earlier calls must not be used any more."""
        if self._from is None or start < self._from:
            self._kept.clear()
            self._from = start
            self._rest = self._source.read(start)
        return self._read(bisect_left(self._kept, start, key=itemgetter(0)))

    def trim(self, time: int) -> None:
        """Forget kept records below this time."""
        while self._kept and self._kept[0][0] < time:
            self._drop()

    def progress(self) -> tuple[int, int] | None:
        return self._source.progress()

    def identity(self) -> str:
        return self._source.identity()

    def _read(self, at: int) -> Iterator[Record]:
        for _, record in list(self._kept)[at:]:
            yield record
        for record in self._rest:
            if len(self._kept) == KEPT_MAX:
                self._drop()
            time = record.time if isinstance(record, BadRecord) else record[0]
            self._kept.append((time, record))
            yield record

    def _drop(self) -> None:
        self._from = self._kept.popleft()[0] + 1
