"""Phrases: in which versions words follow each other, and how often.

A phrase of words w0 w1 ... with slop s is where the words have positions p0, p1, ..., no two the
same, so that the numbers p0 - 0, p1 - 1, ... lie within s of each other. With slop 0 the words are
side by side; with slop 1 one word may be between two of them; with slop 2 two neighbours may be
exchanged. The frequency is in how many places such a match begins: the values of the smallest one
of these numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from driftline.index.postings.packing import Numbers
from driftline.index.postings.parts import Postings

Places = NDArray[np.int64]
"""(version, position) in one number each, ascending: the position is in the low bits."""

VERSION = 1 << 32
"""One version further, in places. A position may be smaller than its word's number in the phrase,
so a place may seem to lie in the version before: `_SHIFT` keeps that apart."""

_SHIFT = 1 << 16
"""Above the number of words of every phrase and every slop."""


def find_phrase(words: Sequence[Postings], slop: int, count: int) -> tuple[Numbers, Numbers]:
    """(ordinals, frequencies) of a phrase among the first `count` versions of a part.

    `words`: the postings of each word of the phrase, in order; the same word is the same object.
    """
    ordinals = [word.ordinals for word in words]
    common: Numbers = reduce(_intersect, ordinals)
    common = common[: np.searchsorted(common, count)]
    places = [_places(word, common, number) for number, word in enumerate(words)]
    if slop and len(set(map(id, words))) < len(words):
        begins = _begins_apart(places, slop)
    else:
        begins = _begins(places, slop)
    rows, frequencies = np.unique(begins // VERSION, return_counts=True)
    return common[rows], frequencies.astype(np.uint32)


def _intersect(ours: Numbers, theirs: Numbers) -> Numbers:
    if len(ours) > len(theirs):
        ours, theirs = theirs, ours
    if not len(ours):
        return ours
    at = np.searchsorted(theirs, ours)
    at[at == len(theirs)] = 0
    common: Numbers = ours[theirs[at] == ours]
    return common


def _places(word: Postings, common: Numbers, number: int) -> Places:
    """The places of a word less its number in the phrase, in versions that have all words."""
    rows = np.searchsorted(word.ordinals, common)
    positions, offsets = word.positions(rows)
    versions = np.repeat(np.arange(len(rows), dtype=np.int64), np.diff(offsets))
    return versions * VERSION + positions + (_SHIFT - number)


def _begins(places: Sequence[Places], slop: int) -> Places:
    """The places from which on each word has one within the slop. No word stands twice, or the
    slop is 0: so no two words can be at the same position."""
    starts = places[0] if not slop else np.unique(np.concatenate(places))
    for each in places if slop else places[1:]:
        if not len(each):
            return each
        at = np.searchsorted(each, starts)
        beyond = at == len(each)
        at[beyond] = 0
        starts = starts[~beyond & (each[at] <= starts + slop)]
    return starts


def _begins_apart(places: Sequence[Places], slop: int) -> Places:
    """As `_begins`, for a phrase in which a word stands twice: positions have to be told apart."""
    starts = _begins(places, slop)
    columns = [each.tolist() for each in places]
    found = [start for start in starts.tolist() if _fits(columns, start, slop)]
    return np.array(found, dtype=np.int64)


def _fits(columns: Sequence[list[int]], start: int, slop: int) -> bool:
    """Whether positions, no two the same, can be chosen from a start on, one of them there."""

    def choose(number: int, used: frozenset[int], begins: bool) -> bool:
        if number == len(columns):
            return begins
        column = columns[number]
        first = int(np.searchsorted(column, start))
        for place in column[first : first + slop + 1]:
            if place > start + slop:
                break
            if place + number not in used:
                here = choose(number + 1, used | {place + number}, begins or place == start)
                if here:
                    return True
        return False

    return choose(0, frozenset(), begins=False)
