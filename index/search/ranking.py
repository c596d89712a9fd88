"""Ranking: the best versions among those that a query finds, in one total order.

Order: the higher score first; of equal scores the earlier version first. So pages of results, and
results of several shards, fit together without a version missing or twice.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from heapq import merge
from itertools import islice

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Place:
    """Where a version stands in the order of results."""

    score: float
    time: int
    """The label time of the version."""

    @property
    def order(self) -> tuple[float, int]:
        """Smaller comes first."""
        return -self.score, self.time


@dataclass(frozen=True, slots=True)
class Ranked:
    """A version that was found."""

    place: Place
    ordinal: int


def best(
    found: NDArray[np.intp],
    scores: NDArray[np.float64],
    times: NDArray[np.int64],
    limit: int,
    after: Place | None = None,
) -> list[Ranked]:
    """The first `limit` of the versions found in one part, behind a place in the order.

    `found`: ordinals, ascending; `scores`, `times`: of each of them.
    """
    if after is not None:
        behind = (scores < after.score) | ((scores == after.score) & (times > after.time))
        found, scores, times = found[behind], scores[behind], times[behind]
    if len(found) > limit:
        worst = np.partition(scores, len(scores) - limit)[len(scores) - limit]
        good = scores >= worst  # more than `limit` if scores are equal: the earlier ones count
        found, scores, times = found[good], scores[good], times[good]
    order = np.lexsort((times, -scores))[:limit]
    return [Ranked(Place(float(scores[i]), int(times[i])), int(found[i])) for i in order.tolist()]


def together(results: Iterable[list[Ranked]], limit: int) -> list[Ranked]:
    """The first ones of several parts or shards."""
    return list(islice(merge(*results, key=lambda ranked: ranked.place.order), limit))
