"""Candidates: the versions of a part that have to be scored to find the best ones.

The leaves of a query are looked at in the order of the most that each can add to a score. Once the
leaves that are left can add less than what the best versions have already, most others are out of
the question: a common word is in nearly all versions, and adds little. Invariant: a version that is
left out has a lower score than as many others as are wanted, so the best ones are the same as if
all were scored. Scores that are compared here are of 32 bits, and added up in another order than
those that are told: `_SLACK` is more than they differ by.

(MaxScore: Turtle and Flood, Query evaluation: strategies and optimizations, 1995.)
"""

from __future__ import annotations

from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from driftline.index.search.matching import Mask, Matching
from driftline.index.search.scoring import Scorer, most, roughly

Scores = NDArray[np.float32] | NDArray[np.float64]

FEW = 16
"""Of less than one in so many versions, scoring each takes less than leaving some of them out."""

_SLACK = 1 - 1e-3
"""A sum of n numbers of 32 bits is wrong by n / 2 ** 23 of it at most, and a query has at most
some thousands of leaves."""

_CHUNK = 64
"""The versions that seem best are looked for among the best ones of so many each."""


class Floor:
    """A score that as many versions have at least as are wanted: it rises as more are known.

    `limit`: how many are wanted, at least 1.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.score = 0.0

    def rise(self, scores: Scores) -> None:
        """Different versions, which the query finds, have these scores at least."""
        if len(scores) >= self.limit:
            self.score = max(self.score, float(np.partition(scores, -self.limit)[-self.limit]))


def candidates(scorer: Scorer, matching: Matching, mask: Mask, floor: Floor) -> NDArray[np.intp]:
    """Ordinals, ascending, of the versions of a part among which the best ones are.

    `mask`: what the query finds in the part.
    """
    found = np.flatnonzero(mask)
    if len(found) * FEW <= matching.count:
        return found
    leaves = [each for each in scorer.factors if not matching.finds_nothing(each[0])]
    leaves.sort(key=lambda each: most(each[1]))
    lefts = accumulate((most(factor) for _, factor in leaves), initial=0.0)
    lengths = {
        leaf.field: matching.part.lengths(leaf.field)[: matching.count].astype(np.float32)
        for leaf, _ in leaves
    }
    so_far = np.zeros(matching.count, np.float32)
    for (leaf, factor), left in reversed(list(zip(leaves, lefts, strict=False))):
        so_far += roughly(matching.often(leaf), lengths[leaf.field], factor)
        floor.rise(_best_of_some(so_far * mask) * _SLACK)
        if left < floor.score:
            good = np.flatnonzero(mask & (so_far >= floor.score * _SLACK - left))
            if len(good) * FEW <= matching.count:
                return good
    return found


def _best_of_some(scores: NDArray[np.float32]) -> NDArray[np.float32]:
    """The largest of each few scores, which are far from each other: so it takes less time."""
    chunks = len(scores) // _CHUNK
    best: NDArray[np.float32] = scores[: chunks * _CHUNK].reshape(_CHUNK, chunks).max(axis=0)
    return best[best > 0]
