"""Facets: how many of the versions found have each keyword, or a value in each of some ranges.

Each shard counts all keywords, not only its own most frequent ones: so the sums are exact.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from driftline.index.postings.parts import Keywords
from driftline.index.query.bound import Between
from driftline.index.search.matching import Mask, Matching


@dataclass(frozen=True, slots=True)
class ByKeyword:
    """The `limit` most frequent keywords of a field, by its number."""

    field: int
    limit: int


@dataclass(frozen=True, slots=True)
class ByRange:
    """Ranges of numbers or dates; they may overlap."""

    ranges: tuple[Between, ...]


Facet = ByKeyword | ByRange


def count_by(facet: Facet, matching: Matching, found: Mask) -> Counter[str]:
    """Count among the versions found in one part: by keyword, or by range as it is written."""
    if isinstance(facet, ByRange):
        return Counter(
            {str(each): int(np.count_nonzero(matching.mask(each) & found)) for each in facet.ranges}
        )
    column = matching.part.values(facet.field)
    assert isinstance(column, Keywords)
    offsets = column.offsets[: len(found) + 1]
    often = np.diff(offsets)
    has = np.repeat(found, often)
    numbers = column.numbers[: offsets[-1]][has]
    if not len(numbers):
        return Counter()
    if often.max() > 1:  # a version that has a keyword twice counts once
        versions = np.repeat(np.arange(len(found)), often)[has]
        numbers = np.unique(versions * len(column.words) + numbers) % len(column.words)
    counts = np.bincount(numbers)
    there = np.flatnonzero(counts).tolist()
    return Counter({column.words[number]: int(counts[number]) for number in there})


def summed(facet: Facet, counts: Iterable[Counter[str]]) -> list[tuple[str, int]]:
    """The facet over all parts or shards.

    Keywords: the most frequent first, of equal ones the one that comes first in the order of texts.
    Ranges: as they were given, also the empty ones.
    """
    total: Counter[str] = Counter()
    for each in counts:
        total.update(each)
    if isinstance(facet, ByRange):
        return [(str(each), total[str(each)]) for each in facet.ranges]
    return sorted(total.items(), key=lambda item: (-item[1], item[0]))[: facet.limit]
