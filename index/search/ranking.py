"""Ranking: selection of the first matches of a query, in one total order.

Without a `Sort`, versions are ordered by descending score. With a `Sort`, they are ordered by the
value of a field, and versions without a value come last. Versions with equal scores or values are
ordered by ascending label time.
Consecutive pages, and the results of several shards, therefore contain each version exactly once.
The process that merges the results of several shards uses `sort_key`, too.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from heapq import merge
from itertools import islice

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from driftline.index.documents.values import NO_DATE
from driftline.index.postings.segment_reader import Column, Keywords

SortValue = float | int | str | None
"""Number, date, or first keyword of a version; None if the version has no value."""

SortKey = tuple[bool, float | int | str | tuple[int, ...], int]
"""Sort key of a `SortPosition`; smaller keys come first. Comparable across parts and shards."""


class SortPosition(Struct, frozen=True):
    """Position in the order of results; `time`: label time of the version at this position.

    `value`: value of the sort field. If results are sorted by a field, the score is 0.
    """

    score: float
    time: int
    value: SortValue = None


class Sort(Struct, frozen=True):
    """Order by the value of a field; `field`: number of this value field."""

    field: int
    descending: bool = False


def sort_key(position: SortPosition, sort: Sort | None = None) -> SortKey:
    """Return the sort key of a position."""
    if sort is None:
        return False, -position.score, position.time
    value = position.value
    if value is None:
        return True, 0, position.time
    if not sort.descending:
        return False, value, position.time
    # In descending order, a text precedes its own prefixes.
    negated = (*(-ord(letter) for letter in value), 1) if isinstance(value, str) else -value
    return False, negated, position.time


Keys = NDArray[np.float64] | NDArray[np.int64]
"""Sort keys of the matches in one part; smaller keys come first. Comparable within the part only.

The key of a keyword is its index in `Keywords.words` of the part.
"""

_LAST_DATE = 2**63 - 1
"""Sort key of a missing date: greater than all dates and all negated dates."""


class Ranked(Struct, frozen=True):
    """A match of a query; `ordinal`: ordinal of the version in the shard."""

    sort_position: SortPosition
    ordinal: int


def rank_by_score(
    ordinals: NDArray[np.intp],
    scores: NDArray[np.float64],
    times: NDArray[np.int64],
    limit: int,
    after: SortPosition | None = None,
) -> list[Ranked]:
    """Return the first `limit` matches of a part after a position, by score.

    `ordinals`: ordinals of the matches in the shard, ascending; `scores`, `times`: score and label
    time of each match.
    """
    start_after = None if after is None else (-after.score, after.time)
    rows = _first_rows(-scores, times, limit, start_after)
    return [Ranked(SortPosition(float(scores[i]), int(times[i])), int(ordinals[i])) for i in rows]


def rank_by_value(
    sort: Sort,
    column: Column,
    ordinals: NDArray[np.intp],
    first: int,
    times: NDArray[np.int64],
    limit: int,
    after: SortPosition | None = None,
) -> list[Ranked]:
    """Return the first `limit` matches of a part after a position, by the value of a field.

    `column`: values of all versions of the part; `ordinals`: ordinals of the matches, relative to
    `first`, the ordinal of the part's first version; `times`: label time of each match.
    """
    keys = _keys(column, ordinals, sort)
    start_after = None if after is None else (_key(column, after.value, sort), after.time)
    rows = _first_rows(keys, times, limit, start_after)
    matches = [(int(times[i]), int(ordinals[i])) for i in rows]
    return [
        Ranked(SortPosition(0.0, time, _value(column, ordinal)), first + ordinal)
        for time, ordinal in matches
    ]


def merge_ranked(
    results: Iterable[list[Ranked]], limit: int, sort: Sort | None = None
) -> list[Ranked]:
    """Merge ranked results of several parts, and return the first `limit`."""
    return list(
        islice(merge(*results, key=lambda ranked: sort_key(ranked.sort_position, sort)), limit)
    )


def _first_rows(
    keys: Keys, times: NDArray[np.int64], limit: int, start_after: tuple[float | int, int] | None
) -> list[int]:
    """Return the indices of the first `limit` keys after `start_after`, in order.

    `start_after`: (key, label time); None: start with the first key.
    """
    rows = np.arange(len(keys))
    if start_after is not None:
        key, time = start_after
        rows = np.flatnonzero((keys > key) | ((keys == key) & (times > time)))
        keys = keys[rows]
    if len(rows) > limit:
        largest = np.partition(keys, limit - 1)[limit - 1]
        is_candidate = keys <= largest  # includes equal keys; lexsort orders these by time
        rows, keys = rows[is_candidate], keys[is_candidate]
    first_rows: list[int] = rows[np.lexsort((times[rows], keys))[:limit]].tolist()
    return first_rows


def _keys(column: Column, ordinals: NDArray[np.intp], sort: Sort) -> Keys:
    """Return the sort keys of the matches in one part."""
    sign = -1 if sort.descending else 1
    if isinstance(column, Keywords):
        begins = column.offsets[ordinals]
        has_value = column.offsets[ordinals + 1] > begins
        keys = np.full(len(ordinals), np.inf)
        keys[has_value] = sign * column.numbers[begins[has_value]].astype(np.float64)
        return keys
    values = column[ordinals]
    if values.dtype == np.int64:
        return np.where(values == NO_DATE, _LAST_DATE, sign * values)
    return np.where(np.isnan(values), np.inf, sign * values)


def _key(column: Column, value: SortValue, sort: Sort) -> float | int:
    """Return the sort key of a value in a part, even if no version of the part has the value."""
    sign = -1 if sort.descending else 1
    if isinstance(column, Keywords):
        if value is None:
            return np.inf
        assert isinstance(value, str)
        number = bisect_left(column.words, value)
        exists = number < len(column.words) and column.words[number] == value
        return sign * (number if exists else number - 0.5)
    assert not isinstance(value, str)
    if value is None:
        return _LAST_DATE if column.dtype == np.int64 else np.inf
    return sign * value


def _value(column: Column, ordinal: int) -> SortValue:
    """Return the sort value of a version; `ordinal`: relative to the part's first version."""
    if isinstance(column, Keywords):
        begin, end = column.offsets[ordinal : ordinal + 2].tolist()
        return column.words[column.numbers[begin]] if begin < end else None
    if column.dtype == np.int64:
        date = int(column[ordinal])
        return None if date == NO_DATE else date
    number = float(column[ordinal])
    return None if np.isnan(number) else number
