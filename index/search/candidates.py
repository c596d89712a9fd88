"""Candidates: the versions of a part that have to be scored to find the best ones.

The leaves of a query are looked at in the order of the most that each can add to a score. Once the
leaves that are left can add less than what the best versions have already, most others are out of
the question: a common word is in nearly all versions, and adds little. Invariant: a version that is
left out has a lower score than as many others as are wanted, so the best ones are the same as if
all were scored. Scores that are compared here are added up in another order than those that are
told, which makes them differ in their last bits: `_SLACK` is more than that.

(MaxScore: Turtle and Flood, Query evaluation: strategies and optimizations, 1995.)
"""

from __future__ import annotations

from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from driftline.index.search.matching import Mask, Matching
from driftline.index.search.scoring import FEW, Scorer, most

Scores = NDArray[np.float64]

_SLACK = 1 - 1e-9

_CHUNK = 64
"""The versions that seem best are looked for among the best ones of so many neighbours."""


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
    leaves = [each for each in scorer.factors if len(matching.hits(each[0]).ordinals)]
    leaves.sort(key=lambda each: most(each[1]))
    lefts = accumulate((most(factor) for _, factor in leaves), initial=0.0)
    so_far = np.zeros(matching.count, np.float64)
    for (leaf, factor), left in reversed(list(zip(leaves, lefts, strict=False))):
        scorer.add(leaf, factor, matching, so_far)
        floor.rise(_best_of_neighbours(so_far * mask))
        if left < floor.score:
            good = np.flatnonzero(mask & (so_far >= floor.score * _SLACK - left))
            if len(good) * FEW <= matching.count:
                return good
    return found


def _best_of_neighbours(scores: Scores) -> Scores:
    """The largest of each few scores that follow each other."""
    chunks = len(scores) // _CHUNK
    best: Scores = scores[: chunks * _CHUNK].reshape(chunks, _CHUNK).max(axis=1)
    return best[best > 0]
