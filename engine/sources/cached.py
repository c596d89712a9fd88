"""A source that packs the records of another source, and caches the latest of them.

To start at a later record, a file source reads all earlier ones. A recovery needs records that
were read shortly before, so `CachedSource` returns them from memory. It caches them in the wire
format, in which a front sends them, so their size in memory is known. It reads records that are no
longer cached from the other source again.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterator

from driftline.engine.sources.source import BadRecord, Source, time_of
from driftline.engine.wire.codec import pack_payload

CACHE_BYTES = 1 << 26
"""Maximum memory of the cached records, in bytes."""

RECORD_OVERHEAD_BYTES = 150
"""Approximate memory of a cached record beyond its content, in bytes."""

PackedRecord = tuple[int, bytes] | BadRecord
"""(time, payload in the wire format), or a record that cannot be read."""


def packed(record: tuple[int, object] | BadRecord) -> PackedRecord:
    """Return the record with its payload in the wire format, or the BadRecord as it is.

    Raises PayloadError if the payload cannot be encoded.
    """
    return record if isinstance(record, BadRecord) else (record[0], pack_payload(record[1]))


class CachedSource:
    """Source that caches the latest records of another source, in at most `cache_bytes` bytes.

    Use only the iterator of the latest `read`: calling `read` invalidates earlier iterators.
    """

    def __init__(self, source: Source, cache_bytes: int = CACHE_BYTES) -> None:
        self._source = source
        self._cache_bytes = cache_bytes
        self._cached: deque[PackedRecord] = deque()
        self._cached_from: int | None = None
        """The cache holds all records from this time to the last one read; None before `read`."""
        self._upcoming: Iterator[tuple[int, object] | BadRecord] = iter(())
        """The records of the other source that are still unread."""
        self.bytes = 0
        """Approximate memory of the cached records, in bytes."""

    @property
    def name(self) -> str:
        return self._source.name

    def read(self, start: int) -> Iterator[PackedRecord]:
        """Yield records with time >= `start`.

        Precondition, except in the first call: all records below `start` have been read, or
        `start` is below the cache. Raises PayloadError at a record that cannot be encoded.
        """
        if self._cached_from is None or start < self._cached_from:
            self._cached.clear()
            self.bytes = 0
            self._cached_from = start
            self._upcoming = self._source.read(start)
        return self._read(bisect_left(self._cached, start, key=time_of))

    def trim(self, time: int) -> None:
        """Remove records below this time from the cache."""
        while self._cached and time_of(self._cached[0]) < time:
            self._drop()

    def progress(self) -> tuple[int, int] | None:
        return self._source.progress()

    def identity(self) -> str:
        return self._source.identity()

    def _read(self, index: int) -> Iterator[PackedRecord]:
        yield from list(self._cached)[index:]
        for unpacked in self._upcoming:
            record = packed(unpacked)
            self._cache(record)
            yield record

    def _cache(self, record: PackedRecord) -> None:
        self._cached.append(record)
        self.bytes += _size(record)
        while self.bytes > self._cache_bytes:
            self._drop()

    def _drop(self) -> None:
        record = self._cached.popleft()
        self._cached_from = time_of(record) + 1
        self.bytes -= _size(record)


def _size(record: PackedRecord) -> int:
    if isinstance(record, BadRecord):
        return len(record.raw) + len(record.text) + RECORD_OVERHEAD_BYTES
    return len(record[1]) + RECORD_OVERHEAD_BYTES
