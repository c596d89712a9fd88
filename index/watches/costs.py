"""What a watch may cost: known from its query, before it is stored, for any version at all.

A search is refused when it would take long on what is there (`index.search.matching`). Nobody waits
for a watch, and whoever puts a document has not put the watch: so what is bounded is how long the
longest text can take, and a watch that could take longer is never stored. Only phrases look at each
position of a text, once for each of their words. All texts of a version together are no longer than
one can be: so what counts is the field with most.
"""

from __future__ import annotations

from collections import Counter

from driftline.engine.errors import DriftlineError
from driftline.index.query.tree import Node, Phrase, leaves

WORDS_MAX = 512
"""Of all phrases of a watch in one field: some tens of milliseconds for a text of 1 MiB."""

SLOPPY = 32
"""A word of a phrase with slop takes as long as so many of one without."""


class WatchTooCostly(DriftlineError):
    """A watch could take too long; `leaf`: the part of its query that costs most."""

    def __init__(self, problem: str, leaf: str) -> None:
        super().__init__(problem)
        self.leaf = leaf


def check(query: Node) -> None:
    """Refuse a query that no watch can have. Raises WatchTooCostly."""
    costs: Counter[int] = Counter()
    dearest: dict[int, Phrase] = {}
    for phrase in (leaf for leaf in leaves(query) if isinstance(leaf, Phrase)):
        costs[phrase.field] += _cost(phrase)
        dearest[phrase.field] = max(dearest.get(phrase.field, phrase), phrase, key=_cost)
    for field, cost in costs.most_common(1):
        if cost > WORDS_MAX:
            leaf = str(dearest[field])
            raise WatchTooCostly(
                f"the phrases of a watch can have {WORDS_MAX} words in one field, or "
                f"{WORDS_MAX // SLOPPY} if they have a ~, because of texts of 1 MiB: leave {leaf} "
                "out, write it without ~, or make several watches of it",
                leaf,
            )


def _cost(phrase: Phrase) -> int:
    return len(phrase.words) * (SLOPPY if phrase.slop else 1)
