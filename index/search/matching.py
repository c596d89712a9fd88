"""Matching: which versions of one part of a shard a query finds.

All sets are dense: a boolean for each version of the part, so that AND, OR and NOT are operations
of numpy. Versions from `count` on are later than T, and cut off first; those that are dead as of T
are for the caller to leave out. Invariant: whether a version is found depends on that version
and the query alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import reduce
from itertools import takewhile
from typing import NamedTuple, assert_never

import numpy as np
from numpy.typing import NDArray

from driftline.index.postings.packing import Numbers
from driftline.index.postings.parts import Keywords, Part
from driftline.index.query import bound
from driftline.index.query.bound import (
    AllOf,
    AnyOf,
    Between,
    BoundPhrase,
    Equals,
    Every,
    KeywordsFrom,
    Near,
    Scoring,
    Without,
    Word,
    WordsFrom,
)
from driftline.index.search.edits import is_near
from driftline.index.search.phrases import find_phrase

Mask = NDArray[np.bool_]


class Hits(NamedTuple):
    """The versions in which a leaf of a query is, and how often."""

    ordinals: Numbers
    """Ascending, relative to the part's first."""
    frequencies: Numbers


NO_HITS = Hits(np.zeros(0, np.uint32), np.zeros(0, np.uint32))


class Matching:
    """What one query finds among the first `count` versions of a part."""

    def __init__(self, part: Part, count: int) -> None:
        self._part = part
        self._count = count
        self._found: dict[Scoring, Hits] = {}

    def mask(self, query: bound.Part) -> Mask:
        """Which versions a query, or a part of one, finds."""
        match query:
            case Every():
                return np.ones(self._count, np.bool_)
            case AllOf():
                return reduce(np.logical_and, map(self.mask, query.parts))
            case AnyOf():
                return reduce(np.logical_or, map(self.mask, query.parts))
            case Without():
                return ~self.mask(query.part)
            case Between():
                return self._between(query)
            case Equals():
                return self._having(query.field, lambda word: word == query.keyword)
            case KeywordsFrom():
                return self._having(query.field, lambda word: word.startswith(query.prefix))
            case Word() | BoundPhrase() | WordsFrom() | Near():
                mask = np.zeros(self._count, np.bool_)
                mask[self.hits(query).ordinals] = True
                return mask
        assert_never(query)

    def hits(self, leaf: Scoring) -> Hits:
        """Where a leaf is that adds to scores."""
        found = self._found.get(leaf)
        if found is None:
            found = self._found[leaf] = self._look_up(leaf)
        return found

    def _look_up(self, leaf: Scoring) -> Hits:
        match leaf:
            case Word():
                return self._word(leaf.field, leaf.word)
            case BoundPhrase():
                return self._phrase(leaf)
            case WordsFrom() | Near():
                return self._any_of(leaf.field, self._words(leaf))
        assert_never(leaf)

    def _word(self, field: int, word: str) -> Hits:
        postings = self._part.postings(field, word)
        if postings is None:
            return NO_HITS
        ordinals = postings.ordinals
        end = np.searchsorted(ordinals, self._count)
        return Hits(ordinals[:end], postings.frequencies[:end])

    def _phrase(self, leaf: BoundPhrase) -> Hits:
        words = {word: self._part.postings(leaf.field, word) for word in leaf.words}
        found = [each for word in leaf.words if (each := words[word]) is not None]
        if len(found) < len(leaf.words):
            return NO_HITS
        return Hits(*find_phrase(found, leaf.slop, self._count))

    def _any_of(self, field: int, words: Iterable[str]) -> Hits:
        """Versions with any of some words, each as often as it has all of them together."""
        often = np.zeros(self._count, np.uint32)
        for word in words:
            hits = self._word(field, word)
            often[hits.ordinals] += hits.frequencies
        ordinals = np.flatnonzero(often).astype(np.uint32)
        return Hits(ordinals, often[ordinals])

    def _words(self, leaf: WordsFrom | Near) -> Iterator[str]:
        """The words of the part that a leaf stands for."""
        if isinstance(leaf, WordsFrom):
            words = self._part.words(leaf.field, leaf.prefix)
            return takewhile(lambda word: word.startswith(leaf.prefix), words)
        return (word for word in self._part.words(leaf.field, "") if is_near(leaf.word, word))

    def _between(self, leaf: Between) -> Mask:
        column = self._part.values(leaf.field)
        assert not isinstance(column, Keywords)
        values = column[: self._count]
        # What is missing is less than all dates, or NaN.
        return np.asarray((values >= leaf.low) & (values <= leaf.high))

    def _having(self, field: int, is_meant: Callable[[str], bool]) -> Mask:
        column = self._part.values(field)
        assert isinstance(column, Keywords)
        meant = np.array([is_meant(word) for word in column.words], np.bool_)
        offsets = column.offsets[: self._count + 1]
        which = np.repeat(np.arange(self._count), np.diff(offsets))
        mask = np.zeros(self._count, np.bool_)
        mask[which[meant[column.numbers[: offsets[-1]]]]] = True
        return mask
