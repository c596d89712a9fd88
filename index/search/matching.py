"""Matching: the versions of one part of a shard that match a query.

A query as of a time T is evaluated on the first `count` versions of the part: those before T. The
caller excludes the versions replaced or deleted before T. A set of versions is an array with a
boolean for each of the `count` versions, so AND, OR and NOT are numpy operations. Invariant:
whether a version matches depends only on the version and the query.

Cost limit: a query whose words and phrases would cost more than the budget is rejected before it is
evaluated. The cost is the number of postings to read, which is known in advance and dominates the
duration of a query. Phrases also read positions; the frequencies of the words give an upper bound
of the number of positions. The cost includes the postings of all versions in the evaluated parts,
even of versions that are not current as of T, because the query reads these, too. Therefore the
state of the shard decides whether a query is rejected. The contents of an answer never depend on
the budget.

The cost excludes prefix and fuzzy leaves: a query contains at most `EXPANDED_MAX` of them
(`index.query.parsing`), and their postings are read in bulk.
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
    PhraseTerm,
    distinct_postings,
    find_phrase,
    phrase_terms,
    steps,
)

Mask = NDArray[np.bool_]


class Hits(NamedTuple):
    """Versions that match a leaf of a query, and the frequency of the leaf in each."""

    ordinals: Numbers
    """Ordinals relative to the part's first version, ascending."""
    frequencies: Numbers


NO_HITS = Hits(np.zeros(0, np.uint32), np.zeros(0, np.uint32))


class Matching:
    """Evaluator of one query on the first `count` versions of a part."""

    def __init__(
        self,
        part: SegmentReader,
        count: int,
        scoring: Collection[Scoring] = (),
        pause: Callable[[], None] = lambda: None,
    ) -> None:
        """`scoring`: leaves whose frequencies will be requested.

        `pause`: called repeatedly during the evaluation, so that other queries can run.
        """
        self.part = part
        self.count = count
        self._scoring = scoring
        self._pause = pause
        self._hits: dict[Scoring, Hits] = {}
        self._dense: dict[Scoring, Frequencies | None] = {}
        """Leaf -> its frequency per version; None: only `hits` provides the frequencies."""
        self._postings: dict[Term, Postings | None] = {}
        self._phrases: dict[Phrase, list[PhraseTerm] | None] = {}

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
                return self._range_mask(query)
            case Keyword():
                return self._keyword_mask(query.field, lambda word: word == query.keyword)
            case KeywordPrefix():
                return self._keyword_mask(query.field, lambda word: word.startswith(query.prefix))
            case Term() | Phrase() | Prefix() | Fuzzy():
                return self._any_of((query,))
        assert_never(query)

    def _any_of(self, queries: Iterable[Node]) -> Mask:
        mask = np.zeros(self.count, np.bool_)
        for query in queries:
            match query:
                case Term() | Phrase() | Prefix() | Fuzzy():
                    if (dense := self._dense_if_cheap(query)) is not None:
                        mask |= dense > 0
                        continue
                    mask[self._ordinals(query)] = True
                case _:
                    mask |= self.mask(query)
        return mask

    def cannot_match(self, query: Node) -> bool:
        """Return True if no version of the part can match, because the part lacks words.

        False: some versions may match.
        """
        match query:
            case And():
                return any(map(self.cannot_match, query.parts))
            case Or():
                return all(map(self.cannot_match, query.parts))
            case Phrase():
                return self.phrase(query) is None
            case Term():
                return self.postings(query) is None
            case Prefix() | Fuzzy():
                return next(self._expansions(query), None) is None
            case _:
                return False

    def phrase(self, leaf: Phrase) -> list[PhraseTerm] | None:
        """Return the terms of a phrase in the part; None if the part lacks a word or pair."""
        if leaf not in self._phrases:
            self._pause()
            self._phrases[leaf] = phrase_terms(self.part, leaf.field, leaf.words)
        return self._phrases[leaf]

    def postings(self, leaf: Term) -> Postings | None:
        """Return the postings of a word; None if no version of the part contains it."""
        if leaf not in self._postings:
            self._postings[leaf] = self.part.postings(leaf.field, leaf.word)
        return self._postings[leaf]

    def hits(self, leaf: Scoring) -> Hits:
        """Return the versions that contain a leaf, and its frequency in each.

        Precondition: the leaf is a word or a phrase.
        """
        hits = self._hits.get(leaf)
        if hits is None:
            hits = self._hits[leaf] = self._read_hits(leaf)
        return hits

    def dense_frequencies(self, leaf: Scoring) -> Frequencies:
        """Return the frequency of a scoring leaf for each of the `count` versions."""
        dense = self._dense_if_cheap(leaf)
        if dense is None:
            ordinals, frequencies = self.hits(leaf)
            dense = np.zeros(self.count, np.uint32)
            dense[ordinals] = frequencies
            self._dense[leaf] = dense
        return dense

    def frequencies_in(
        self, leaf: Scoring, versions: NDArray[np.intp]
    ) -> tuple[Indices, Frequencies]:
        """Return the indices in `versions` of those that match a leaf, and its frequency in each.

        `versions`: ordinals relative to the part's first version, ascending.
        """
        dense = self._dense_if_cheap(leaf)
        if dense is not None:
            frequencies = dense[versions]
            rows = np.flatnonzero(frequencies)
            return rows, frequencies[rows]
        hits = self.hits(leaf)
        if not len(hits.ordinals):
            return np.zeros(0, np.intp), hits.frequencies
        rows, hit_rows = intersect_indices(versions, hits.ordinals)
        return rows, hits.frequencies[hit_rows]

    def _dense_if_cheap(self, leaf: Scoring) -> Frequencies | None:
        """Return the frequency of a leaf per version; None if only `hits` provides it."""
        try:
            return self._dense[leaf]
        except KeyError:
            self._pause()
            dense: Frequencies | None = None
            match leaf:
                case Term():
                    postings = self.postings(leaf)
                    dense = None if postings is None else postings.dense_frequencies
                case Prefix() | Fuzzy():
                    dense = self._sum_expansions(leaf)
            self._dense[leaf] = None if dense is None else dense[: self.count]
            return self._dense[leaf]

    def _read_hits(self, leaf: Scoring) -> Hits:
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
                raise AssertionError("prefix and fuzzy leaves always have dense frequencies")
        assert_never(leaf)

    def _ordinals(self, leaf: Scoring) -> Numbers:
        """Return the ordinals of a leaf's hits; read frequencies only if scoring needs them."""
        if leaf in self._scoring or not isinstance(leaf, Term):
            return self.hits(leaf).ordinals
        postings = self.postings(leaf)
        return NO_HITS.ordinals if postings is None else self._truncate(postings.ordinals)

    def _truncate(self, ordinals: Numbers) -> Numbers:
        """Return the ordinals below `count`."""
        return ordinals[: np.searchsorted(ordinals, self.count)]

    def _sum_expansions(self, leaf: Expanded) -> Frequencies:
        """Return, per version of the part, the summed frequency of a leaf's expansions."""
        sums = np.zeros(self.part.count, np.uint32)
        for ordinals, frequencies in self._expanded_postings(leaf):
            np.add.at(sums, ordinals, frequencies)
            self._pause()
        return sums.astype(np.min_scalar_type(sums.max(initial=0)))

    def _expanded_postings(self, leaf: Expanded) -> Iterator[tuple[Numbers, Numbers]]:
        """Yield ordinals and frequencies of the words that a leaf expands to."""
        if isinstance(leaf, Prefix):
            yield from self.part.postings_of_prefix(leaf.field, leaf.prefix)
            return
        for word in self._expansions(leaf):
            postings = self.part.postings(leaf.field, word)
            if postings is not None:
                yield postings.ordinals, postings.frequencies

    def _expansions(self, leaf: Expanded) -> Iterator[str]:
        """Yield the words of the part that a leaf expands to."""
        if isinstance(leaf, Prefix):
            return words_from(self.part, leaf.field, leaf.prefix)
        return near_words(self.part, leaf.field, leaf.word)

    def _range_mask(self, leaf: Range) -> Mask:
        column = self.part.values(leaf.field)
        assert not isinstance(column, Keywords)
        values = column[: self.count]
        # A missing value never matches: it is less than all dates, or NaN.
        return np.asarray((values >= leaf.low) & (values <= leaf.high))

    def _keyword_mask(self, field: int, is_match: Callable[[str], bool]) -> Mask:
        """Return the versions with a keyword for which `is_match` returns True."""
        column = self.part.values(field)
        assert isinstance(column, Keywords)
        is_match_by_number = np.array([is_match(word) for word in column.words], np.bool_)
        offsets = column.offsets[: self.count + 1]
        versions = np.repeat(np.arange(self.count), np.diff(offsets))  # version of each entry
        mask = np.zeros(self.count, np.bool_)
        mask[versions[is_match_by_number[column.numbers[: offsets[-1]]]]] = True
        return mask


STEPS_PER_POSTING = 4
"""Number of steps to find a phrase (`phrases.steps`) that cost as much as one posting."""


class QueryTooCostly(DriftlineError):
    """Raised if a query would exceed the budget; `leaf`: text of its most expensive leaf."""

    def __init__(self, problem: str, leaf: str) -> None:
        super().__init__(problem)
        self.leaf = leaf


BUDGET = 4_000_000
"""Default cost limit of a query in a shard, in postings: some tenths of a second."""


def check_cost(query: Node, matchings: Sequence[Matching], budget: int) -> None:
    """Raise QueryTooCostly if a query costs more than `budget` postings in a shard.

    `matchings`: an evaluator per part that the query reads.
    """
    counted = dict.fromkeys(leaf for leaf in leaves(query) if isinstance(leaf, Term | Phrase))
    costs = {leaf: _postings_cost(leaf, matchings) for leaf in counted}
    _check_total(costs, budget)
    # Check the number of postings first, as `_positions_cost` reads the frequencies of all of them.
    costs = {leaf: cost + _positions_cost(leaf, matchings) for leaf, cost in costs.items()}
    _check_total(costs, budget)


def _check_total(costs: Mapping[Term | Phrase, int], budget: int) -> None:
    total = sum(costs.values())
    if total > budget:
        leaf = max(costs, key=costs.__getitem__)
        raise QueryTooCostly(
            f"the query would read {total:,} postings, {costs[leaf]:,} of them for {leaf}; the "
            f"maximum is {budget:,}: remove {leaf}, or search for rarer words",
            str(leaf),
        )


def _postings_cost(leaf: Term | Phrase, matchings: Sequence[Matching]) -> int:
    """Return the number of postings to read for a leaf."""
    cost = 0
    for matching in matchings:
        if isinstance(leaf, Phrase):
            cost += sum(each.count for each in distinct_postings(matching.phrase(leaf) or ()))
        elif (postings := matching.postings(leaf)) is not None:
            cost += postings.count
    return cost


def _positions_cost(leaf: Term | Phrase, matchings: Sequence[Matching]) -> int:
    """Return the cost of reading a phrase's positions, in postings; 0 for a word."""
    if not isinstance(leaf, Phrase):
        return 0
    phrases = [matching.phrase(leaf) for matching in matchings]
    return sum(steps(phrase) // STEPS_PER_POSTING for phrase in phrases if phrase)
