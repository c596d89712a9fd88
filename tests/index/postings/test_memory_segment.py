"""Memory segment: it contains all added versions, and earlier reads do not change."""

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from numpy.typing import NDArray

from driftline.index.postings import memory_segment as tails
from driftline.index.postings.memory_segment import MemorySegment
from driftline.index.postings.segment_reader import Keywords, Postings
from tests.index.postings.model import (
    TEXT_FIELDS,
    VALUE_FIELDS,
    VersionRow,
    check,
    many_rows,
    rows,
)


@settings(max_examples=25)
@given(rows)
def test_memory_segment_has_each_version_as_soon_as_it_is_added(some: list[VersionRow]) -> None:
    tail = MemorySegment(7, TEXT_FIELDS, VALUE_FIELDS)
    for number, row in enumerate(some):
        check(tail, 7, some[:number])
        tail.add(*row)
    check(tail, 7, some)


Array = NDArray[np.uint32] | NDArray[np.int64] | NDArray[np.float64]


def arrays_of(tail: MemorySegment) -> Iterator[Array]:
    """Yield all arrays that a tail returns now."""
    yield tail.times
    for field in range(TEXT_FIELDS):
        yield tail.lengths(field)
        for word in list(tail.words(field, ""))[:9]:
            postings = tail.postings(field, word)
            assert postings is not None
            yield postings.ordinals
            yield postings.positions(np.arange(postings.count))[0]
    for number in range(len(VALUE_FIELDS)):
        column = tail.values(number)
        if isinstance(column, Keywords):
            yield column.offsets
            yield column.numbers
        else:
            yield column


@pytest.mark.parametrize("recent", [0, 5, 1 << 10])
def test_later_writes_do_not_change_earlier_reads(
    recent: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Arrays also stay valid if the segment moves its data because they were full."""
    monkeypatch.setattr(tails, "RECENT_MAX", recent)
    some = many_rows(60, seed=2)
    tail = MemorySegment(0, TEXT_FIELDS, VALUE_FIELDS)
    arrays: list[tuple[Array, bytes]] = []
    postings: list[tuple[Postings, list[int]]] = []
    words: list[tuple[Iterator[str], list[str]]] = []
    for number, row in enumerate(some):
        if number % 10 == 0:
            arrays += [(array, array.tobytes()) for array in arrays_of(tail)]
            words.append((tail.words(0, ""), list(tail.words(0, ""))))
            for word in list(tail.words(0, ""))[:9]:
                found = tail.postings(0, word)
                assert found is not None
                postings.append((found, found.ordinals.tolist()))
        tail.add(*row)
    assert all(array.tobytes() == before for array, before in arrays)
    assert all(found.ordinals.tolist() == before for found, before in postings)
    assert all(found.count == len(before) for found, before in postings)
    assert all(list(found) == before for found, before in words)
    check(tail, 0, some)
