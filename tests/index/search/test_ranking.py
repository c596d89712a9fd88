"""The order by values, over parts, against sorted lists."""

from __future__ import annotations

from random import Random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from driftline.index.documents.values import Kind, Value, ValueKind
from driftline.index.documents.versions import DocumentVersion
from driftline.index.postings.memory_segment import MemorySegment
from driftline.index.search.ranking import (
    Sort,
    SortValue,
    merge_ranked,
    rank_by_value,
)

KINDS: tuple[ValueKind, ...] = (Kind.KEYWORD, Kind.NUMBER, Kind.DATE)

SOME: tuple[tuple[SortValue, ...], ...] = (
    (None, "", "a", "ab", "abc", "b", "ba", "é", "😀"),
    (None, -1.5, 0.0, -0.0, 1e300, 2.0),
    (None, -(10**17), -1, 0, 10**17, 10**17 + 1),
)
"""Values of each field."""


def parts_of(values: list[tuple[Value | None, ...]], cuts: list[int]) -> list[MemorySegment]:
    """The versions with these values, at times 0, 1, 2, ..., divided at some places."""
    parts = [MemorySegment(0, 0, KINDS)]
    for time, each in enumerate(values):
        if time in cuts:
            parts.append(MemorySegment(time, 0, KINDS))
        parts[-1].add(time, DocumentVersion("c", str(time), (), each, b""))
    return parts


@given(
    st.integers(0, 2),
    st.booleans(),
    st.randoms(use_true_random=False),
    st.sets(st.integers(1, 39)),
    st.integers(1, 9),
)
def test_pages_are_those_of_a_sorted_list(
    field: int, descending: bool, random: Random, cuts: set[int], limit: int
) -> None:
    some = SOME[field]
    column: list[SortValue] = [random.choice(some) for _ in range(40)]
    values: list[tuple[Value | None, ...]] = []
    for each in column:
        row: list[Value | None] = [None, None, None]
        row[field] = (each, "zz") if isinstance(each, str) else each
        values.append(tuple(row))
    having = [time for time, value in enumerate(column) if value is not None]
    having.sort(key=lambda time: column[time], reverse=descending)  # type: ignore[arg-type, return-value]
    expected = having + [time for time, value in enumerate(column) if value is None]
    sort, after, found = Sort(field, descending), None, list[int]()
    parts = parts_of(values, sorted(cuts))
    while True:
        pages = [
            rank_by_value(
                sort,
                part.values(field),
                np.arange(part.count),
                part.first,
                part.times,
                limit,
                after,
            )
            for part in parts
        ]
        page = merge_ranked(pages, limit, sort)
        found += [each.ordinal for each in page]
        assert [each.sort_position.value for each in page] == [
            column[each.ordinal] for each in page
        ]
        if len(page) < limit:
            break
        after = page[-1].sort_position
    assert found == expected
