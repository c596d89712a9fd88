"""Why a version has its score: what each leaf of the query adds to it.

The shares are the very numbers of which scores are made: added one after the other, from 0 on, they
give the score to the last bit.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from driftline.index.query.bound import Part, Scoring
from driftline.index.search.matching import Matching
from driftline.index.search.scoring import Scorer, bm25


@dataclass(frozen=True, slots=True)
class Share:
    """What a leaf adds; all figures are as of T, over all shards."""

    leaf: Scoring
    frequency: int
    """How often the version has it; 0: not at all, and it adds nothing."""
    length: int
    """The words of its field in the version."""
    documents: int
    """The documents that have the field."""
    having: tuple[int, ...]
    """In how many documents each of its words is; of a prefix or near word this does not count."""
    average: float
    """The average length of the field in the documents that have it."""
    weight: float
    """The weight of the field."""
    rarity: float
    score: float


@dataclass(frozen=True, slots=True)
class Explanation:
    """`matches`: whether the query finds the version."""

    matches: bool
    score: float
    shares: tuple[Share, ...]


def explain(query: Part, scorer: Scorer, matching: Matching, row: int) -> Explanation:
    """Explain the score of one version of a part."""
    score = 0.0
    shares = []
    for leaf, factor in scorer.factors:
        _, often = matching.within(leaf, np.array([row]))
        length = matching.part.lengths(leaf.field)[row : row + 1]
        adds = float(bm25(often, length, factor)[0]) if len(often) else 0.0
        score += adds
        shares.append(
            Share(
                leaf,
                int(often.sum()),
                int(length[0]),
                factor.documents,
                factor.having,
                factor.length / factor.documents if factor.documents else 0.0,
                factor.weight,
                factor.rarity,
                adds,
            )
        )
    return Explanation(bool(matching.mask(query)[row]), score, tuple(shares))
