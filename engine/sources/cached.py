"""A source that keeps what it has read, so that a replay need not read a file from its beginning.

A file can be read from any record on, but only by reading all of it up to there. Recoveries ask
for records that were read a moment ago: they come from memory here.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterator
from operator import itemgetter

from driftline.engine.sources.source import BadRecord, Source

KEPT_MAX = 100_000
"""Records that are kept at most."""

Record = tuple[int, object] | BadRecord


class CachedSource:
    """Another source, with the latest records in memory. One reader at a time."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._kept: deque[tuple[int, Record]] = deque(maxlen=KEPT_MAX)
        self._from: int | None = None
        """Everything from this time up to what has been read last is kept; None: nothing is."""
        self._rest: Iterator[Record] = iter(())

    @property
    def name(self) -> str:
        return self._source.name

    def read(self, start: int) -> Iterator[Record]:
        """Records from a time on; whoever read before stops reading."""
        if self._from is None or start < self._from:
            self._kept.clear()
            self._from = start
            self._rest = self._source.read(start)
        return self._read(bisect_left(self._kept, start, key=itemgetter(0)))

    def trim(self, time: int) -> None:
        """Records below this time will not be asked for again."""
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
