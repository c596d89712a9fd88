"""The order by values, pages, counts and facets, over shards and parts, against sorted lists."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from driftline.index.documents.values import Kind, Value, ValueKind
from driftline.index.documents.versions import DocumentVersion
from driftline.index.postings.memory_segment import MemorySegment
from driftline.index.query.tree import Query
from driftline.index.search.matching import Matching
from driftline.index.search.ranking import (
    Sort,
    SortPosition,
    SortValue,
    merge_ranked,
    rank_by_value,
)
from driftline.index.search.results import count_by
from tests.index.search.indexes import QUERY, Index, histories, indexes
from tests.index.search.model import Document, Model

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


@given(st.randoms(use_true_random=False), st.sets(st.integers(1, 39)), st.integers(1, 2))
def test_facets_count_what_was_found(random: Random, cuts: set[int], most: int) -> None:
    words = [tuple(random.choices("cbade", k=random.randint(0, most))) for _ in range(40)]
    found = [random.random() < 0.5 for _ in words]
    expected = Counter(
        word for some, has in zip(words, found, strict=True) for word in set(some * has)
    )
    counts: Counter[str] = Counter()
    for part in parts_of([(some, None, None) for some in words], sorted(cuts)):
        mask = np.array(found[part.first : part.first + part.count])
        counts.update(count_by(0, Matching(part, part.count), mask))
    assert counts == expected


SORT = st.builds(Sort, st.integers(0, 2), st.booleans())


def value_of(document: Document, field: int) -> SortValue:
    return (
        (*document.keywords, None)[0] if field == 0 else (document.number, document.date)[field - 1]
    )


def in_order(model: Model, query: Query, time: int, sort: Sort) -> list[tuple[str, SortPosition]]:
    """All that a query finds, sorted."""
    found = [
        (id, SortPosition(0.0, written, value_of(document, sort.field)))
        for id, written, document in model.found(query, time)
    ]
    found.sort(key=lambda hit: hit[1].time)
    having = [hit for hit in found if hit[1].value is not None]
    having.sort(key=lambda hit: hit[1].value, reverse=sort.descending)  # type: ignore[arg-type, return-value]
    return having + [hit for hit in found if hit[1].value is None]


def pages(
    index: Index, query: Query, time: int, sort: Sort, limit: int
) -> list[tuple[str, SortPosition]]:
    """All results, page by page."""
    found: list[tuple[str, SortPosition]] = []
    after = None
    while True:
        page = merge_ranked(
            (shard.search(query, time, limit, after, sort=sort).ranked for shard in index.shards),
            limit,
            sort,
        )
        ids = {
            shard.time_of(shard_ordinal): id
            for shard in index.shards
            for id in "pqrstuvw"
            if (shard_ordinal := shard.find(id, time)) is not None
        }
        found += [(ids[each.sort_position.time], each.sort_position) for each in page]
        if len(page) < limit:
            return found
        after = page[-1].sort_position


@given(
    histories(),
    QUERY,
    SORT,
    st.lists(st.integers(1, 25), max_size=4),
    st.integers(1, 5),
    st.data(),
)
def test_sorted_pages_are_those_of_the_model(
    tmp_path: Path,
    history: tuple[Model, int],
    query: Query,
    sort: Sort,
    sealed_at: list[int],
    limit: int,
    data: st.DataObject,
) -> None:
    model, time = history
    at = data.draw(st.integers(0, time + 1))
    expected = in_order(model, query, at, sort)
    for index in indexes(tmp_path, model, sealed_at):
        assert pages(index, query, at, sort, limit) == expected


@given(
    histories(),
    QUERY,
    st.lists(st.integers(1, 25), max_size=4),
    st.data(),
)
def test_counts_and_facets_are_those_of_the_model(
    tmp_path: Path,
    history: tuple[Model, int],
    query: Query,
    sealed_at: list[int],
    data: st.DataObject,
) -> None:
    model, time = history
    at = data.draw(st.integers(0, time + 1))
    found = [document for _, _, document in model.found(query, at)]
    keywords = Counter(word for each in found for word in set(each.keywords))
    for index in indexes(tmp_path, model, sealed_at):
        answers = [shard.search(query, at, 3, facets=[0]) for shard in index.shards]
        assert sum(answer.total for answer in answers) == len(found)
        assert sum(shard.count(query, at) for shard in index.shards) == len(found)
        counts = [answer.facets[0] for answer in answers]
        assert sum(counts, Counter()) == keywords
