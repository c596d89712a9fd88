"""Phrases: in which versions words follow each other, and how often.

A phrase of words w0 w1 ... with slop s is where the words have positions p0, p1, ..., no two the
same, so that the numbers p0 - 0, p1 - 1, ... lie within s of each other. With slop 0 the words are
side by side; with slop 1 one word may be between two of them; with slop 2 two neighbours may be
exchanged. The frequency is in how many places such a match begins: the values of the smallest one
of these numbers.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Mapping, Sequence
from functools import reduce
from itertools import chain
from typing import NamedTuple

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
        begins = _begins_apart(words, places, slop)
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


def _begins_apart(words: Sequence[Postings], places: Sequence[Places], slop: int) -> Places:
    """As `_begins`, for a phrase in which a word stands twice: positions have to be told apart."""
    starts = _begins(places, slop)
    groups = [
        Group(numbers, (places[numbers[0]] + numbers[0]).tolist())
        for numbers in _grouped(list(map(id, words)))
    ]
    found = [start for start in starts.tolist() if _choice(groups, start, slop) is not None]
    return np.array(found, dtype=np.int64)


class Group(NamedTuple):
    """One of the different words of a phrase: its numbers there, and its positions in a text."""

    numbers: list[int]
    positions: Sequence[int]


def in_text(
    words: Sequence[str], slop: int, positions: Mapping[str, Sequence[int]]
) -> frozenset[int]:
    """The positions in a text at which a word of a phrase is part of a match.

    Of the matches that begin in one place it is one. `positions`: of each word of the text.
    """
    if any(word not in positions for word in words):
        return frozenset()
    groups = [Group(numbers, positions[words[numbers[0]]]) for numbers in _grouped(words)]
    starts = {
        position - number
        for group in groups[: 1 if not slop else None]
        for number in group.numbers
        for position in group.positions
    }
    choices = (_choice(groups, start, slop) for start in sorted(starts))
    return frozenset(chain.from_iterable(filter(None, choices)))


def _grouped(words: Sequence[Hashable]) -> list[list[int]]:
    """The numbers of each different word, in order."""
    numbers: dict[Hashable, list[int]] = {}
    for number, word in enumerate(words):
        numbers.setdefault(word, []).append(number)
    return list(numbers.values())


def _choice(groups: Sequence[Group], start: int, slop: int) -> list[int] | None:
    """Positions, no two the same, from a start on, one of them there; None: there are none."""
    chosen = [_fitted(group, start, slop, None) for group in groups]
    found = [positions for positions in chosen if positions is not None]
    if len(found) < len(groups):
        return None
    begins = any(
        position == start + number
        for group, positions in zip(groups, found, strict=True)
        for number, position in zip(group.numbers, positions, strict=True)
    )
    for which, group in enumerate(groups if not begins else ()):
        for number in group.numbers:
            fixed = _fitted(group, start, slop, number)
            if fixed is not None:
                found[which], begins = fixed, True
                break
        if begins:
            break
    return list(chain.from_iterable(found)) if begins else None


def _fitted(group: Group, start: int, slop: int, fixed: int | None) -> list[int] | None:
    """A position for each number of a word; `fixed`: the number that has to be at the start.

    Each takes the first one that is left: as all may be equally far out of place, if there is a
    choice, this is one.
    """
    positions = group.positions
    taken = None if fixed is None else start + fixed
    found: list[int] = []
    free = start
    for number in group.numbers:
        if number == fixed and taken is not None:
            at = bisect_left(positions, taken)
        else:
            at = bisect_left(positions, max(start + number, free))
            at += at < len(positions) and positions[at] == taken
            free = positions[at] + 1 if at < len(positions) else free
        if at == len(positions) or positions[at] > start + number + slop:
            return None
        if number == fixed and positions[at] != taken:
            return None
        found.append(positions[at])
    return found
