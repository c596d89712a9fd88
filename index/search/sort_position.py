"""Positions of versions in the total order of results, and their sort keys.

The process that merges the results of several shards needs no other module of this
package.
"""

from __future__ import annotations

from dataclasses import dataclass

SortValue = float | int | str | None
"""Number, date, or first keyword of a version; None if the version has no value."""

Order = tuple[bool, float | int | str | tuple[int, ...], int]
"""Sort key of a position, ascending; comparable across parts and shards."""


@dataclass(frozen=True, slots=True)
class SortPosition:
    """Position of a version in the order of results; `time`: its label time.

    `value`: the value of the sort field. The score is 0 if results are sorted by a field.
    """

    score: float
    time: int
    value: SortValue = None


@dataclass(frozen=True, slots=True)
class Sort:
    """Order by the value of a field; `field`: its number among the value fields."""

    field: int
    descending: bool = False


def sort_key(place: SortPosition, sort: Sort | None = None) -> Order:
    """Return the sort key of a position."""
    if sort is None:
        return False, -place.score, place.time
    value = place.value
    if value is None:
        return True, 0, place.time
    if not sort.descending:
        return False, value, place.time
    # In descending order, a text precedes its own prefixes.
    turned = (*(-ord(letter) for letter in value), 1) if isinstance(value, str) else -value
    return False, turned, place.time
