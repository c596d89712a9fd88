"""What a query may cost. One that would cost more is refused before it is evaluated.

The cost is the number of postings that have to be read, which is known without reading them: that
is nearly all that evaluating takes. Only phrases look at positions, too, of which a text may have
any number: the most steps that takes follow from how often each word is there. Counted are all
versions of the shard, also those that are not alive as of T, because they are read, too. So a
refusal is about the shard as it is now: of answers that are given, nothing depends on the budget.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from driftline.engine.errors import DriftlineError
from driftline.index.query.bound import (
    AllOf,
    AnyOf,
    BoundPhrase,
    Near,
    Part,
    Scoring,
    Without,
    Word,
    WordsFrom,
)
from driftline.index.search.matching import Matching
from driftline.index.search.phrases import different, steps

STEPS = 4
"""Of a phrase: so many cost as much as one posting."""


class TooCostly(DriftlineError):
    """A query would cost too much; `leaf`: the part of it that costs most."""

    def __init__(self, problem: str, leaf: str) -> None:
        super().__init__(problem)
        self.leaf = leaf


@dataclass(frozen=True, slots=True)
class Budget:
    """`postings`: of the whole query; `words`: that one prefix or near word stands for."""

    postings: int = 4_000_000
    words: int = 1_000


BUDGET = Budget()
"""Some tenths of a second for a query."""


def check(query: Part, matchings: Sequence[Matching], budget: Budget) -> None:
    """Refuse a query that would cost too much in the parts of a shard. Raises TooCostly."""
    costs = {leaf: _cost(leaf, matchings, budget.words) for leaf in dict.fromkeys(_leaves(query))}
    _check(costs, budget)
    # How often words are there is in the postings: read once it is known that they are not many.
    _check({leaf: cost + _steps(leaf, matchings) for leaf, cost in costs.items()}, budget)


def _check(costs: Mapping[Scoring, int], budget: Budget) -> None:
    total = sum(costs.values())
    if total > budget.postings:
        leaf = max(costs, key=costs.__getitem__)
        sloppy = isinstance(leaf, BoundPhrase) and leaf.slop
        do = "write it without ~" if sloppy else "look for something rarer"
        raise TooCostly(
            f"the query would read {total:,} postings, {costs[leaf]:,} of them for {leaf}, and the "
            f"most is {budget.postings:,}: leave {leaf} out, or {do}",
            str(leaf),
        )


def _leaves(part: Part) -> Iterator[Scoring]:
    match part:
        case AllOf() | AnyOf():
            for each in part.parts:
                yield from _leaves(each)
        case Without():
            yield from _leaves(part.part)
        case Word() | BoundPhrase() | WordsFrom() | Near():
            yield part


def _cost(leaf: Scoring, matchings: Sequence[Matching], words_max: int) -> int:
    """The postings of a leaf. Raises TooCostly if it stands for too many words."""
    if isinstance(leaf, BoundPhrase):
        return sum(
            postings.count
            for matching in matchings
            for postings in different(matching.phrase(leaf) or ())
        )
    words: set[str] = set()
    for matching in matchings:
        words |= matching.postings(leaf, words_max).keys()
        if len(words) > words_max:
            do = "write more of it" if isinstance(leaf, WordsFrom) else "write it without ~"
            raise TooCostly(f"{leaf} stands for more than {words_max:,} words: {do}", str(leaf))
    return sum(
        postings.count for matching in matchings for postings in matching.postings(leaf).values()
    )


def _steps(leaf: Scoring, matchings: Sequence[Matching]) -> int:
    """What looking at positions costs, of a phrase."""
    if not isinstance(leaf, BoundPhrase):
        return 0
    phrases = [matching.phrase(leaf) for matching in matchings]
    return sum(steps(phrase, leaf.slop) // STEPS for phrase in phrases if phrase)
