"""A source that packs the records of another one, and keeps the latest of them.

To read a file from some record on, all records before it have to be read, too. A recovery asks for
records that were read a moment ago: these come from memory. They are kept in the wire format, in
which a front sends them: so their size is known, and is what they take. Records that do not fit
are read again from the other source.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterator

from driftline.engine.sources.source import BadRecord, Source, time_of
from driftline.engine.wire.codec import pack_payload

KEPT_BYTES = 1 << 26
"""Bytes of the records that are kept, at most."""

EACH_BYTES = 150
"""Bytes of memory that a kept record takes beside its content, about."""

PackedRecord = tuple[int, bytes] | BadRecord
"""(time, payload in the wire format), or a record that cannot be read."""


def packed(record: tuple[int, object] | BadRecord) -> PackedRecord:
    """The record in the wire format. Raises PayloadError if it cannot travel."""
    return record if isinstance(record, BadRecord) else (record[0], pack_payload(record[1]))


class CachedSource:
    """Another source, with its latest records in memory, `kept_bytes` at most.

    Only the latest `read` may be used.
    """

    def __init__(self, source: Source, kept_bytes: int = KEPT_BYTES) -> None:
        self._source = source
        self._kept_bytes = kept_bytes
        self._kept: deque[PackedRecord] = deque()
        self._from: int | None = None
        """All records from this time to the last one read are kept; None before the first read."""
        self._rest: Iterator[tuple[int, object] | BadRecord] = iter(())
        """The records that were not read yet."""
        self.bytes = 0
        """Bytes of the records that are kept."""

    @property
    def name(self) -> str:
        return self._source.name

    def read(self, start: int) -> Iterator[PackedRecord]:
        """Records with time >= `start`. Iterators of earlier calls must not be used any more.

        Raises PayloadError at a record that cannot travel.
        """
        if self._from is None or start < self._from:
            self._kept.clear()
            self.bytes = 0
            self._from = start
            self._rest = self._source.read(start)
        return self._read(bisect_left(self._kept, start, key=time_of))

    def trim(self, time: int) -> None:
        """Forget kept records below this time."""
        while self._kept and time_of(self._kept[0]) < time:
            self._drop()

    def progress(self) -> tuple[int, int] | None:
        return self._source.progress()

    def identity(self) -> str:
        return self._source.identity()

    def _read(self, at: int) -> Iterator[PackedRecord]:
        yield from list(self._kept)[at:]
        for read in self._rest:
            record = packed(read)
            self._keep(record)
            yield record

    def _keep(self, record: PackedRecord) -> None:
        self._kept.append(record)
        self.bytes += _size(record)
        while self.bytes > self._kept_bytes:
            self._drop()

    def _drop(self) -> None:
        record = self._kept.popleft()
        self._from = time_of(record) + 1
        self.bytes -= _size(record)


def _size(record: PackedRecord) -> int:
    if isinstance(record, BadRecord):
        return len(record.raw) + len(record.text) + EACH_BYTES
    return len(record[1]) + EACH_BYTES
