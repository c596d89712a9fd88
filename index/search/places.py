"""Places: where versions stand in the one order of results, and how two of them are compared.

Whoever puts the results of shards together needs no more than this.
"""

from __future__ import annotations

from dataclasses import dataclass

SortValue = float | int | str | None
"""A number, a date, or the first of the keywords; None: the version has none."""

Order = tuple[bool, float | int | str | tuple[int, ...], int]
"""Of a place: the smaller comes first; the same for all parts and shards."""


@dataclass(frozen=True, slots=True)
class SortPosition:
    """Where a version stands in the order of results; `time`: its label time.

    `value`: by which the results are sorted; if they are, the score is 0.
    """

    score: float
    time: int
    value: SortValue = None


@dataclass(frozen=True, slots=True)
class Sort:
    """By the value of a field, which has this number among the keywords, numbers and dates."""

    field: int
    descending: bool = False


def order(place: SortPosition, sort: Sort | None = None) -> Order:
    """What is compared of places."""
    if sort is None:
        return False, -place.score, place.time
    value = place.value
    if value is None:
        return True, 0, place.time
    if not sort.descending:
        return False, value, place.time
    # Descending, a text comes before its own beginning.
    turned = (*(-ord(letter) for letter in value), 1) if isinstance(value, str) else -value
    return False, turned, place.time
