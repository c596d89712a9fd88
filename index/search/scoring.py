"""Scoring by BM25, to the last bit the same on every replica, shard and division into parts.

What goes in are integers that are exact as of T. What follows are operations of float64 in one
order, element by element; a logarithm is taken once for each word of a query, not on arrays. So a
score depends on the version, the query and T alone. The leaves of a query add to it in the order in
which they were written.

A word counts by its frequency in the field, the length of the field, and its rarity. A phrase is as
rare as its words together. All words that a beginning or a near word stands for count as one word
with a rarity of 1. A leaf that is `often` in a field adds, from left to right,

    weight * rarity * (often * (K1 + 1)) / (often + K1 * (1 - B + B * relative))

where `relative` is the length of the field * how many documents have it / its length in all these,
and `rarity` the sum of log1p((documents - having + 0.5) / (having + 0.5)) over the words of a leaf.

(Robertson and Zaragoza, The probabilistic relevance framework, 2009, section 3.4.)

Only versions that can be among the best ones are scored. The leaves of a query are looked at in the
order of the most that each can add to a score. Once the leaves that are left can add less than what
the best versions have already, most others are out of the question: a common word is in nearly all
versions, and adds little. Invariant: a version that is left out has a lower score than as many
others as are wanted, so the best ones are the same as if all were scored. Scores that are compared
for that are of 32 bits, and added up in another order than those that are told: `_SLACK` is more
than they differ by.

(MaxScore: Turtle and Flood, Query evaluation: strategies and optimizations, 1995.)
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from math import log1p
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from driftline.index.postings.packing import Numbers
from driftline.index.postings.parts import Often
from driftline.index.query.tree import Phrase, Scoring, Term
from driftline.index.search.matching import Mask, Matching
from driftline.index.search.statistics import Statistics

K1 = 1.2
"""How soon more occurrences of a word count less."""

B = 0.75
"""How much the length of a field counts."""


class Factor(NamedTuple):
    """What is the same for all versions in the score of a leaf."""

    weight: float
    """Of the field."""
    rarity: float
    having: tuple[int, ...]
    """In how many documents each of its words is."""
    documents: int
    """Documents that have the field."""
    length: int
    """The sum of its lengths in these."""


class Scorer:
    """Scores versions by the leaves of one query, as of one time."""

    def __init__(
        self,
        leaves: Sequence[Scoring],
        weights: Sequence[float],
        statistics: Statistics,
        time: int,
    ) -> None:
        self.factors = [(leaf, _factor(leaf, weights, statistics, time)) for leaf in leaves]

    def scores(self, matching: Matching, found: NDArray[np.intp]) -> NDArray[np.float64]:
        """The scores of some versions of a part; `found`: their ordinals, ascending."""
        scores = np.zeros(len(found), np.float64)
        for leaf, factor in self.factors:
            rows, frequencies = matching.within(leaf, found)
            if len(rows):
                lengths = matching.part.lengths(leaf.field)[found[rows]]
                scores[rows] += bm25(frequencies, lengths, factor)
        return scores


def bm25(frequencies: Often, lengths: Numbers, factor: Factor) -> NDArray[np.float64]:
    """The scores of a leaf in versions: it is so often in fields of these lengths."""
    often = frequencies.astype(np.float64)
    relative = lengths.astype(np.float64) * factor.documents / factor.length
    weight = factor.weight * factor.rarity
    return weight * (often * (K1 + 1)) / (often + K1 * (1 - B + B * relative))


def roughly(often: Often, lengths: NDArray[np.float32], factor: Factor) -> NDArray[np.float32]:
    """`bm25` of all versions of a part, in a tenth of the time: 0 for those without the leaf."""
    scores = often.astype(np.float32)
    below = lengths * np.float32(K1 * B * factor.documents / factor.length)
    below += np.float32(K1 * (1 - B))
    below += scores
    scores /= below
    scores *= np.float32(most(factor))
    return scores


def most(factor: Factor) -> float:
    """What a leaf can add at most: as often as can be, in a text that is nothing else."""
    return factor.weight * factor.rarity * (K1 + 1)


def rarity(documents: int, having: int) -> float:
    """The inverse document frequency of a word: of so many documents so many have it."""
    return log1p((documents - having + 0.5) / (having + 0.5))


def _factor(leaf: Scoring, weights: Sequence[float], statistics: Statistics, time: int) -> Factor:
    field = statistics.field(leaf.field, time)
    match leaf:
        case Term():
            words: tuple[str, ...] = (leaf.word,)
        case Phrase():
            words = leaf.words
        case _:
            words = ()
    having = tuple(statistics.documents_with(leaf.field, word, time) for word in words)
    rare = 0.0 if words else 1.0
    for each in having:
        rare += rarity(field.documents, each)
    return Factor(weights[leaf.field], rare, having, field.documents, max(field.length, 1))


Scores = NDArray[np.float32] | NDArray[np.float64]

FEW = 16
"""Of less than one in so many versions, scoring each takes less than leaving some of them out."""

_SLACK = 1 - 1e-3
"""A sum of n numbers of 32 bits is wrong by n / 2 ** 23 of it at most, and a query has at most
some thousands of leaves."""

_CHUNK = 64
"""The versions that seem best are looked for among the best ones of so many each."""


class ScoreThreshold:
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


def candidates(
    scorer: Scorer, matching: Matching, mask: Mask, floor: ScoreThreshold
) -> NDArray[np.intp]:
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
