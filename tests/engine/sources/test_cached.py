"""Records are kept for a replay, as many as fit, and they take the memory that is counted."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator

import pytest

from driftline.engine.sources import CachedSource
from driftline.engine.wire.codec import pack


class Numbers:
    """A source of long texts that counts how often it is read."""

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


@pytest.mark.parametrize("size", [0, 30, 300])
def test_kept_records_take_the_memory_that_is_counted(size: int) -> None:
    cached = CachedSource(Numbers(20_000, size))
    tracemalloc.start()
    try:
        read = sum(1 for _ in cached.read(1))
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert read == 20_000
    assert taken < 1.1 * cached.bytes


def test_what_does_not_fit_is_read_again_and_the_latest_records_are_not() -> None:
    source = Numbers(100, 50)
    cached = CachedSource(source, kept_bytes=5000)
    wanted = [(time, pack(str(time).rjust(50))) for time in range(1, 101)]
    assert list(cached.read(1)) == wanted
    assert cached.bytes <= 5000
    assert list(cached.read(90)) == wanted[89:]
    assert source.reads == 1
    assert list(cached.read(2)) == wanted[1:]
    assert source.reads == 2
    cached.trim(101)
    assert cached.bytes == 0
