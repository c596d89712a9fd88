"""Sorted pages, counts and facets against the sequential model, over shards and parts."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from driftline.index.query.bound import Between, Bound
from driftline.index.search.places import Place, Sort, SortValue
from driftline.index.search.ranking import together
from driftline.index.search.results.facets import ByKeyword, ByRange, summed
from tests.index.search.indexes import QUERY, Index, histories, indexes
from tests.index.search.model import Document, Model

SORT = st.builds(Sort, st.integers(0, 2), st.booleans())
RANGES = ByRange((Between(1, "n", -1.5, 0.0), Between(1, "n", 5.0, 7.0), Between(2, "day", -7, 8)))


def value_of(document: Document, field: int) -> SortValue:
    return (
        (*document.keywords, None)[0] if field == 0 else (document.number, document.date)[field - 1]
    )


def in_order(model: Model, query: Bound, time: int, sort: Sort) -> list[tuple[str, Place]]:
    """All that a query finds, sorted."""
    found = [
        (id, Place(0.0, written, value_of(document, sort.field)))
        for id, written, document in model.found(query, time)
    ]
    found.sort(key=lambda hit: hit[1].time)
    having = [hit for hit in found if hit[1].value is not None]
    having.sort(key=lambda hit: hit[1].value, reverse=sort.descending)  # type: ignore[arg-type, return-value]
    return having + [hit for hit in found if hit[1].value is None]


def pages(index: Index, query: Bound, time: int, sort: Sort, limit: int) -> list[tuple[str, Place]]:
    """All results, page by page."""
    found: list[tuple[str, Place]] = []
    after = None
    while True:
        page = together(
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
        found += [(ids[each.place.time], each.place) for each in page]
        if len(page) < limit:
            return found
        after = page[-1].place


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
    query: Bound,
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
    st.integers(1, 4),
    st.none() | st.sampled_from("pqx"),
    st.data(),
)
def test_counts_and_facets_are_those_of_the_model(
    tmp_path: Path,
    history: tuple[Model, int],
    query: Bound,
    sealed_at: list[int],
    limit: int,
    without: str | None,
    data: st.DataObject,
) -> None:
    model, time = history
    at = data.draw(st.integers(0, time + 1))
    found = [document for id, _, document in model.found(query, at) if id != without]
    keywords = Counter(word for each in found for word in set(each.keywords))
    top = sorted(keywords.items(), key=lambda item: (-item[1], item[0]))[:limit]
    ranges = [
        sum(
            value is not None and each.low <= value <= each.high
            for document in found
            for value in [(document.number, document.date)[each.field - 1]]
        )
        for each in RANGES.ranges
    ]
    facets = ByKeyword(0, limit), RANGES
    for index in indexes(tmp_path, model, sealed_at):
        answers = [
            shard.search(query, at, 3, facets=facets, without=without) for shard in index.shards
        ]
        assert sum(answer.total for answer in answers) == len(found)
        assert sum(shard.count(query, at, without) for shard in index.shards) == len(found)
        assert summed(facets[0], (answer.facets[0] for answer in answers)) == top
        by_range = summed(facets[1], (answer.facets[1] for answer in answers))
        assert by_range == list(zip(map(str, RANGES.ranges), ranges, strict=True))
