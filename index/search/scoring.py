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
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log1p
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from driftline.index.postings.packing import Numbers
from driftline.index.postings.parts import Often
from driftline.index.query.bound import BoundPhrase, Scoring, Word
from driftline.index.search.matching import Matching
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
        case Word():
            words: tuple[str, ...] = (leaf.word,)
        case BoundPhrase():
            words = leaf.words
        case _:
            words = ()
    having = tuple(statistics.documents_with(leaf.field, word, time) for word in words)
    rare = 0.0 if words else 1.0
    for each in having:
        rare += rarity(field.documents, each)
    return Factor(weights[leaf.field], rare, having, field.documents, max(field.length, 1))
