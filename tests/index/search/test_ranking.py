"""The order by values, over parts, against sorting a list; keywords of many versions."""

from __future__ import annotations

from collections import Counter
from random import Random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from driftline.index.documents.values import Kind, Value, ValueKind
from driftline.index.documents.versions import Version
from driftline.index.postings.tail import Tail
from driftline.index.query.bound import Between
from driftline.index.search.matching import Matching
from driftline.index.search.places import Sort, SortValue
from driftline.index.search.ranking import best_by, together
from driftline.index.search.results.facets import ByKeyword, ByRange, Facet, count_by, summed

KINDS: tuple[ValueKind, ...] = (Kind.KEYWORD, Kind.NUMBER, Kind.DATE)

SOME: tuple[tuple[SortValue, ...], ...] = (
    (None, "", "a", "ab", "abc", "b", "ba", "é", "😀"),
    (None, -1.5, 0.0, -0.0, 1e300, 2.0),
    (None, -(10**17), -1, 0, 10**17, 10**17 + 1),
)
"""Values of each field."""


def parts_of(values: list[tuple[Value | None, ...]], cuts: list[int]) -> list[Tail]:
    """The versions with these values, at times 0, 1, 2, ..., divided at some places."""
    parts = [Tail(0, 0, KINDS)]
    for time, each in enumerate(values):
        if time in cuts:
            parts.append(Tail(time, 0, KINDS))
        parts[-1].add(time, Version("c", str(time), (), each, b""))
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
            best_by(
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
        page = together(pages, limit, sort)
        found += [each.ordinal for each in page]
        assert [each.place.value for each in page] == [column[each.ordinal] for each in page]
        if len(page) < limit:
            break
        after = page[-1].place
    assert found == expected


@given(st.randoms(use_true_random=False), st.sets(st.integers(1, 39)), st.integers(1, 2))
def test_facets_count_what_was_found(random: Random, cuts: set[int], most: int) -> None:
    values: list[tuple[Value | None, ...]] = [
        (tuple(random.choices("cbade", k=random.randint(0, most))), random.randint(0, 9) / 1, None)
        for _ in range(40)
    ]
    found = [random.random() < 0.5 for _ in values]
    ranges_of_it = Between(1, "n", 2.0, 5.0), Between(1, "n", 5.0, 7.0)
    facets: list[Facet] = [ByKeyword(0, 4), ByRange(ranges_of_it)]
    keywords: Counter[str] = Counter()
    ranges = [0, 0]
    for (words, number, _), is_found in zip(values, found, strict=True):
        assert isinstance(words, tuple)
        assert isinstance(number, float)
        keywords.update(set(words) if is_found else ())
        ranges[0] += is_found and 2 <= number <= 5
        ranges[1] += is_found and 5 <= number <= 7
    counts: list[list[Counter[str]]] = [[], []]
    for part in parts_of(values, sorted(cuts)):
        mask = np.array(found[part.first : part.first + part.count])
        for each, facet in zip(counts, facets, strict=True):
            each.append(count_by(facet, Matching(part, part.count), mask))
    top = sorted(keywords.items(), key=lambda item: (-item[1], item[0]))[:4]
    assert summed(facets[0], reversed(counts[0])) == top
    assert [number for _, number in summed(facets[1], counts[1])] == ranges
