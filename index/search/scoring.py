"""BM25 scoring. All replicas compute the same scores to the last bit, for any shards and parts.

The inputs are integers that are exact as of T. The float64 operations have a fixed order, element
by element; the logarithm is computed once per word of a query, not on arrays. The scores of leaves
are added in the order in which the query contains the leaves. A score therefore depends only on the
version, the query and T.

The score of a leaf depends on its frequency in the field, the length of the field, and its inverse
document frequency `idf`. A prefix or fuzzy leaf counts all words that it expands to as one word
with an `idf` of 1. A leaf adds, evaluated from left to right,

    weight * idf * (frequency * (K1 + 1)) / (frequency + K1 * (1 - B + B * relative_length))

    relative_length = length * documents / total_length
    idf = the sum of log1p((documents - having + 0.5) / (having + 0.5)) over the words of the leaf

weight        weight of the field
frequency     number of occurrences of the leaf in the field of the version
length        number of words in the field of the version
documents     number of documents that have the field
total_length  number of words in the field of all these documents
having        number of these documents that contain the word

(Robertson and Zaragoza, The probabilistic relevance framework, 2009, section 3.4.)

`candidates` selects the versions that can be among the best `limit` ones; only these are scored.
It processes leaves in descending order of their maximum score, and maintains a threshold: a lower
bound of the `limit` best scores. Once the remaining leaves together can add less than the
threshold, many versions can no longer reach it: the remaining leaves are mostly common words, which
are in nearly all versions and add little. If these are most versions, it skips them; otherwise it
continues with the next leaf. Invariant: for each skipped version, at least `limit` versions have a
higher score. The result is therefore the same as if all versions were scored. The selection uses
approximate float32 scores; `_SLACK` allows for their error.

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
from driftline.index.postings.segment_reader import Frequencies
from driftline.index.query.tree import Phrase, Scoring, Term
from driftline.index.search.matching import Mask, Matching
from driftline.index.search.statistics import Statistics

K1 = 1.2
"""Saturation: with a smaller value, further occurrences of a word add less."""

B = 0.75
"""Strength of length normalisation."""


class Factor(NamedTuple):
    """Inputs of a leaf's score that are the same for all versions."""

    weight: float
    """Weight of the field."""
    idf: float
    """Sum of the inverse document frequencies of the words; 1 for prefix and fuzzy leaves."""
    document_frequencies: tuple[int, ...]
    """Document frequency of each word of the leaf; empty for prefix and fuzzy leaves."""
    documents: int
    """Number of documents that have the field."""
    length: int
    """Total length of the field in these documents, at least 1."""


class Scorer:
    """Scorer of versions by the leaves of one query, as of one time.

    `weights`: weight of each text field.
    """

    def __init__(
        self,
        leaves: Sequence[Scoring],
        weights: Sequence[float],
        statistics: Statistics,
        time: int,
    ) -> None:
        self.factors = [(leaf, _factor(leaf, weights, statistics, time)) for leaf in leaves]

    def scores(self, matching: Matching, ordinals: NDArray[np.intp]) -> NDArray[np.float64]:
        """Return the scores of versions of a part; `ordinals`: relative to the part, ascending."""
        scores = np.zeros(len(ordinals), np.float64)
        for leaf, factor in self.factors:
            rows, frequencies = matching.frequencies_in(leaf, ordinals)
            if len(rows):
                lengths = matching.part.lengths(leaf.field)[ordinals[rows]]
                scores[rows] += bm25(frequencies, lengths, factor)
        return scores


def bm25(frequencies: Frequencies, lengths: Numbers, factor: Factor) -> NDArray[np.float64]:
    """Return the score of a leaf per version, given its frequency and the length of the field."""
    frequency = frequencies.astype(np.float64)
    relative_length = lengths.astype(np.float64) * factor.documents / factor.length
    weight = factor.weight * factor.idf
    return weight * (frequency * (K1 + 1)) / (frequency + K1 * (1 - B + B * relative_length))


def approximate_bm25(
    frequencies: Frequencies, lengths: NDArray[np.float32], factor: Factor
) -> NDArray[np.float32]:
    """Approximate `bm25` for all versions of a part, in a tenth of the time.

    The score of a version without the leaf is 0.
    """
    scores = frequencies.astype(np.float32)
    denominator = lengths * np.float32(K1 * B * factor.documents / factor.length)
    denominator += np.float32(K1 * (1 - B))
    denominator += scores
    scores /= denominator
    scores *= np.float32(max_score(factor))
    return scores


def max_score(factor: Factor) -> float:
    """Return an upper bound of a leaf's score: its limit for an unlimited frequency."""
    return factor.weight * factor.idf * (K1 + 1)


def idf(documents: int, having: int) -> float:
    """Return the inverse document frequency of a word that `having` of `documents` contain."""
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
    frequencies = tuple(statistics.document_frequency(leaf.field, word, time) for word in words)
    idf_sum = 0.0 if words else 1.0
    for having in frequencies:
        idf_sum += idf(field.documents, having)
    return Factor(weights[leaf.field], idf_sum, frequencies, field.documents, max(field.length, 1))


Scores = NDArray[np.float32] | NDArray[np.float64]

SPARSE_RATIO = 16
"""If at most one in this many versions matches, scoring all matches is cheaper than skipping."""

_SLACK = 1 - 1e-3
"""Factor that allows for the error of approximate scores. The relative error of a float32 sum of n
terms is at most n / 2 ** 23, so this suffices for some thousands of leaves."""

_GROUP_SIZE = 64
"""Versions per group; only the best score of each group can raise the threshold."""


class ScoreThreshold:
    """Lower bound of the scores of the best `limit` versions, which never decreases.

    `limit`: number of requested versions; may be 0 only if `update` is never called.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.score = 0.0

    def update(self, scores: Scores) -> None:
        """Raise the bound, given lower bounds of the scores of different matching versions."""
        if len(scores) >= self.limit:
            self.score = max(self.score, float(np.partition(scores, -self.limit)[-self.limit]))


def candidates(
    scorer: Scorer, matching: Matching, mask: Mask, threshold: ScoreThreshold
) -> NDArray[np.intp]:
    """Return the matches of a part that may be among the best `threshold.limit` ones.

    `mask`: the matches of the query in the part. The result contains ordinals relative to the
    part's first version, ascending. Also increases the threshold.
    """
    matches = np.flatnonzero(mask)
    if len(matches) * SPARSE_RATIO <= matching.count:
        return matches
    leaves = [each for each in scorer.factors if not matching.cannot_match(each[0])]
    leaves.sort(key=lambda each: max_score(each[1]))
    # Per leaf, the most that the leaves before it, which are processed later, can add to a score.
    rest_maxima = accumulate((max_score(factor) for _, factor in leaves), initial=0.0)
    lengths = {
        leaf.field: matching.part.lengths(leaf.field)[: matching.count].astype(np.float32)
        for leaf, _ in leaves
    }
    partial = np.zeros(matching.count, np.float32)
    for (leaf, factor), rest_max in reversed(list(zip(leaves, rest_maxima, strict=False))):
        partial += approximate_bm25(matching.dense_frequencies(leaf), lengths[leaf.field], factor)
        threshold.update(_group_maxima(partial * mask) * _SLACK)
        if rest_max < threshold.score:
            rows = np.flatnonzero(mask & (partial >= threshold.score * _SLACK - rest_max))
            if len(rows) * SPARSE_RATIO <= matching.count:
                return rows
    return matches


def _group_maxima(scores: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the largest score of each group, if it is positive.

    The versions of a group are not adjacent: a strided maximum is faster. Up to
    `_GROUP_SIZE` - 1 versions at the end are in no group.
    """
    groups = len(scores) // _GROUP_SIZE
    strided = scores[: groups * _GROUP_SIZE].reshape(_GROUP_SIZE, groups)
    best: NDArray[np.float32] = strided.max(axis=0)
    return best[best > 0]
