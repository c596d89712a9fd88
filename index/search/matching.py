"""Matching: the versions of one part of a shard that match a query.

A set of versions is an array with a boolean per version of the part, so AND, OR and NOT are numpy
operations. Only the first `count` versions, which precede T, are evaluated; the caller excludes
those replaced before T. Invariant: whether a version matches depends only on the version and the
query.

Cost limit: a query whose words and phrases would cost more than the budget is rejected before it is
evaluated. The cost is the number of postings to read, which is known in advance and dominates the
duration of a query. Phrases also read positions; an upper bound of their number follows from the
frequencies of the words. The cost includes the postings of all versions in the evaluated parts,
also of versions that are not current as of T, because these are read too. Whether a query is
rejected therefore depends on the state of the shard, but no returned answer depends on the budget.

Prefix and fuzzy leaves have no cost limit: a query contains few of them (`index.query.parsing`),
and their postings are read in bulk.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from typing import NamedTuple, assert_never

import numpy as np
from numpy.typing import NDArray

from driftline.engine.errors import DriftlineError
from driftline.index.postings.packing import Indices, Numbers, intersect_indices
from driftline.index.postings.segment_reader import Frequencies, Keywords, Postings, SegmentReader
from driftline.index.query.tree import (
    And,
    Exists,
    Expanded,
    Fuzzy,
    Keyword,
    KeywordPrefix,
    MatchAll,
    Node,
    Not,
    Or,
    Phrase,
    Prefix,
    Range,
    Scoring,
    Term,
    leaves,
)
from driftline.index.search.fuzzy import near_words, words_from
from driftline.index.search.phrases import (
    Numbered,
    distinct_postings,
    find_phrase,
    phrase_in,
    steps,
)

Mask = NDArray[np.bool_]


class Hits(NamedTuple):
    """Versions that contain a leaf of a query, and its frequency in each."""

    ordinals: Numbers
    """Ordinals relative to `first` of the part, ascending."""
    frequencies: Numbers


NO_HITS = Hits(np.zeros(0, np.uint32), np.zeros(0, np.uint32))


class Matching:
    """Matches of one query among the first `count` versions of a part."""

    def __init__(
        self,
        part: SegmentReader,
        count: int,
        scoring: Collection[Scoring] = (),
        pause: Callable[[], None] = lambda: None,
    ) -> None:
        """`scoring`: leaves whose frequencies will be requested; `pause`: called often."""
        self.part = part
        self.count = count
        self._scoring = scoring
        self._pause = pause
        self._hits: dict[Scoring, Hits] = {}
        self._dense: dict[Scoring, Frequencies | None] = {}
        """Leaf -> its frequency per version; None: not available without reading hits."""
        self._postings: dict[Term, Postings | None] = {}
        self._phrases: dict[Phrase, list[Numbered] | None] = {}

    def mask(self, query: Node) -> Mask:
        """Return, per version, whether it matches a query or subquery."""
        match query:
            case MatchAll():
                return np.ones(self.count, np.bool_)
            case And():
                return reduce(np.logical_and, map(self.mask, query.parts))
            case Or():
                return self._any_of(query.parts)
            case Not():
                return ~self.mask(query.part)
            case Exists():
                return self.part.lengths(query.field)[: self.count] > 0
            case Range():
                return self._between(query)
            case Keyword():
                return self._having(query.field, lambda word: word == query.keyword)
            case KeywordPrefix():
                return self._having(query.field, lambda word: word.startswith(query.prefix))
            case Term() | Phrase() | Prefix() | Fuzzy():
                return self._any_of((query,))
        assert_never(query)

    def _any_of(self, queries: Iterable[Node]) -> Mask:
        mask = np.zeros(self.count, np.bool_)
        for query in queries:
            match query:
                case Term() | Phrase() | Prefix() | Fuzzy():
                    if (often := self._dense_if_cheap(query)) is not None:
                        mask |= often > 0
                        continue
                    mask[self._ordinals(query)] = True
                case _:
                    mask |= self.mask(query)
        return mask

    def finds_nothing(self, query: Node) -> bool:
        """Return whether a query matches no version of the part because words are missing.

        False if this is unknown.
        """
        match query:
            case And():
                return any(map(self.finds_nothing, query.parts))
            case Or():
                return all(map(self.finds_nothing, query.parts))
            case Phrase():
                return self.phrase(query) is None
            case Term():
                return self.postings(query) is None
            case Prefix() | Fuzzy():
                return next(self._words(query), None) is None
            case _:
                return False

    def phrase(self, leaf: Phrase) -> list[Numbered] | None:
        """Return the postings of a phrase in the part; None if one is missing."""
        if leaf not in self._phrases:
            self._pause()
            found = phrase_in(self.part, leaf.field, leaf.words)
            self._phrases[leaf] = found
        return self._phrases[leaf]

    def postings(self, leaf: Term) -> Postings | None:
        """Return the postings of a word; None if no version has it."""
        if leaf not in self._postings:
            self._postings[leaf] = self.part.postings(leaf.field, leaf.word)
        return self._postings[leaf]

    def hits(self, leaf: Scoring) -> Hits:
        """Return the versions that contain a scoring leaf."""
        found = self._hits.get(leaf)
        if found is None:
            found = self._hits[leaf] = self._look_up(leaf)
        return found

    def dense_frequencies(self, leaf: Scoring) -> Frequencies:
        """Return the frequency of a scoring leaf per version."""
        found = self._dense_if_cheap(leaf)
        if found is None:
            ordinals, frequencies = self.hits(leaf)
            found = np.zeros(self.count, np.uint32)
            found[ordinals] = frequencies
            self._dense[leaf] = found
        return found

    def frequencies_in(
        self, leaf: Scoring, versions: NDArray[np.intp]
    ) -> tuple[Indices, Frequencies]:
        """Return the rows of `versions` that contain a scoring leaf, and its frequency in each.

        `versions`: ordinals, ascending.
        """
        often = self._dense_if_cheap(leaf)
        if often is not None:
            found = often[versions]
            rows = np.flatnonzero(found)
            return rows, found[rows]
        ordinals, frequencies = self.hits(leaf)
        if not len(ordinals):
            return np.zeros(0, np.intp), frequencies
        rows, of = intersect_indices(versions, ordinals)
        return rows, frequencies[of]

    def _dense_if_cheap(self, leaf: Scoring) -> Frequencies | None:
        """Return the frequency of a leaf per version; None if it requires reading hits."""
        try:
            return self._dense[leaf]
        except KeyError:
            self._pause()
            often: Frequencies | None = None
            match leaf:
                case Term():
                    postings = self.postings(leaf)
                    often = None if postings is None else postings.dense_frequencies
                case Prefix() | Fuzzy():
                    often = self._sum_expansions(leaf)
            self._dense[leaf] = None if often is None else often[: self.count]
            return self._dense[leaf]

    def _look_up(self, leaf: Scoring) -> Hits:
        match leaf:
            case Term():
                postings = self.postings(leaf)
                if postings is None:
                    return NO_HITS
                ordinals = self._truncate(postings.ordinals)
                return Hits(ordinals, postings.frequencies[: len(ordinals)])
            case Phrase():
                phrase = self.phrase(leaf)
                return Hits(*find_phrase(phrase, self.count)) if phrase else NO_HITS
            case Prefix() | Fuzzy():
                raise AssertionError("these are kept by version")
        assert_never(leaf)

    def _ordinals(self, leaf: Scoring) -> Numbers:
        """Return the ordinals of a leaf; read its frequencies only if these are needed."""
        if leaf in self._scoring or not isinstance(leaf, Term):
            return self.hits(leaf).ordinals
        postings = self.postings(leaf)
        return NO_HITS.ordinals if postings is None else self._truncate(postings.ordinals)

    def _truncate(self, ordinals: Numbers) -> Numbers:
        """Remove ordinals from `count` on."""
        return ordinals[: np.searchsorted(ordinals, self.count)]

    def _sum_expansions(self, leaf: Expanded) -> Frequencies:
        """Return, per version of the part, the summed frequency of a leaf's expansions."""
        often = np.zeros(self.part.count, np.uint32)
        for ordinals, frequencies in self._postings_of(leaf):
            np.add.at(often, ordinals, frequencies)
            self._pause()
        return often.astype(np.min_scalar_type(often.max(initial=0)))

    def _postings_of(self, leaf: Expanded) -> Iterator[tuple[Numbers, Numbers]]:
        if isinstance(leaf, Prefix):
            yield from self.part.postings_of_prefix(leaf.field, leaf.prefix)
            return
        for word in self._words(leaf):
            postings = self.part.postings(leaf.field, word)
            if postings is not None:
                yield postings.ordinals, postings.frequencies

    def _words(self, leaf: Expanded) -> Iterator[str]:
        """Yield the words of the part that a leaf expands to."""
        if isinstance(leaf, Prefix):
            return words_from(self.part, leaf.field, leaf.prefix)
        return near_words(self.part, leaf.field, leaf.word)

    def _between(self, leaf: Range) -> Mask:
        column = self.part.values(leaf.field)
        assert not isinstance(column, Keywords)
        values = column[: self.count]
        # A missing value never matches: it is less than all dates, or NaN.
        return np.asarray((values >= leaf.low) & (values <= leaf.high))

    def _having(self, field: int, is_meant: Callable[[str], bool]) -> Mask:
        column = self.part.values(field)
        assert isinstance(column, Keywords)
        meant = np.array([is_meant(word) for word in column.words], np.bool_)
        offsets = column.offsets[: self.count + 1]
        which = np.repeat(np.arange(self.count), np.diff(offsets))
        mask = np.zeros(self.count, np.bool_)
        mask[which[meant[column.numbers[: offsets[-1]]]]] = True
        return mask


STEPS_PER_POSTING = 4
"""Number of steps of a phrase (`phrases.steps`) that cost as much as one posting."""


class QueryTooCostly(DriftlineError):
    """Raised if a query would cost too much; `leaf`: its most expensive leaf."""

    def __init__(self, problem: str, leaf: str) -> None:
        super().__init__(problem)
        self.leaf = leaf


BUDGET = 4_000_000
"""Postings that a query's words and phrases may read in a shard: some tenths of a second."""


def check(query: Node, matchings: Sequence[Matching], budget: int) -> None:
    """Reject a query that costs more than `budget` postings of a shard. Raises QueryTooCostly."""
    some = dict.fromkeys(leaf for leaf in leaves(query) if isinstance(leaf, Term | Phrase))
    costs = {leaf: _cost(leaf, matchings) for leaf in some}
    _check(costs, budget)
    # `_steps` reads the frequencies of all postings, so check the number of postings first.
    _check({leaf: cost + _steps(leaf, matchings) for leaf, cost in costs.items()}, budget)


def _check(costs: Mapping[Term | Phrase, int], budget: int) -> None:
    total = sum(costs.values())
    if total > budget:
        leaf = max(costs, key=costs.__getitem__)
        raise QueryTooCostly(
            f"the query would read {total:,} postings, {costs[leaf]:,} of them for {leaf}, and the "
            f"most is {budget:,}: leave {leaf} out, or look for something rarer",
            str(leaf),
        )


def _cost(leaf: Term | Phrase, matchings: Sequence[Matching]) -> int:
    """Return the number of postings to read for a leaf."""
    cost = 0
    for matching in matchings:
        if isinstance(leaf, Phrase):
            cost += sum(each.count for each in distinct_postings(matching.phrase(leaf) or ()))
        elif (postings := matching.postings(leaf)) is not None:
            cost += postings.count
    return cost


def _steps(leaf: Term | Phrase, matchings: Sequence[Matching]) -> int:
    """Return the cost of reading a phrase's positions, in postings."""
    if not isinstance(leaf, Phrase):
        return 0
    phrases = [matching.phrase(leaf) for matching in matchings]
    return sum(steps(phrase) // STEPS_PER_POSTING for phrase in phrases if phrase)
