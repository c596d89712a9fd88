"""Replay cache of a front: bounded in bytes, as counted; other records are read again."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator

import pytest

from driftline.engine.errors import PayloadError
from driftline.engine.sources import BadRecord, CachedSource, ListSource
from driftline.engine.wire.codec import joined_rows, pack, unpack_rows

LARGE = [f"{number} " + "x" * 10_000 for number in range(50)]


def records(cached: CachedSource, start: int) -> list[tuple[int, object]]:
    read = [record for record in cached.read(start) if not isinstance(record, BadRecord)]
    values = unpack_rows(joined_rows([payload for _, payload in read]))
    return list(zip([time for time, _ in read], values, strict=True))


def test_replay_gives_the_same_records_with_and_without_cache_hits() -> None:
    cached = CachedSource(ListSource(LARGE), cache_bytes=60_000)
    expected = list(enumerate(LARGE, 1))
    for start in (1, 2, 30, 47, 50, 51):
        assert records(cached, start) == expected[start - 1 :]
        assert cached.bytes <= 60_000
    cached.trim(49)
    assert records(cached, 49) == expected[48:]


def test_unencodable_record_is_named() -> None:
    with pytest.raises(PayloadError, match=r"at \['a'\] is of type object"):
        list(CachedSource(ListSource([{"a": object()}])).read(1))


class CountedTexts:
    """Source of long texts that counts how often it is read."""

    name = "numbers"

    def __init__(self, count: int, size: int = 0) -> None:
        self.count = count
        self.size = size
        self.reads = 0

    def read(self, start: int) -> Iterator[tuple[int, object]]:
        self.reads += 1
        for time in range(start, self.count + 1):
            yield time, str(time).rjust(self.size)

    def progress(self) -> tuple[int, int] | None:
        return None

    def identity(self) -> str:
        return self.name


def test_cached_records_use_no_more_memory_than_counted() -> None:
    cached = CachedSource(CountedTexts(5_000, 30))
    tracemalloc.start()
    try:
        read = sum(1 for _ in cached.read(1))
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert read == 5_000
    assert taken < 1.1 * cached.bytes


def test_cache_keeps_the_latest_records_and_rereads_evicted_ones() -> None:
    source = CountedTexts(100, 50)
    cached = CachedSource(source, cache_bytes=5000)
    wanted = [(time, pack(str(time).rjust(50))) for time in range(1, 101)]
    assert list(cached.read(1)) == wanted
    assert cached.bytes <= 5000
    assert list(cached.read(90)) == wanted[89:]
    assert source.reads == 1
    assert list(cached.read(2)) == wanted[1:]
    assert source.reads == 2
    cached.trim(101)
    assert cached.bytes == 0
