"""Phrases: in which versions words follow each other, and how often.

A phrase of words w0 w1 ... with slop s is where the words have positions p0, p1, ..., no two the
same, so that the numbers p0 - 0, p1 - 1, ... lie within s of each other. With slop 0 the words are
side by side; with slop 1 one word may be between two of them; with slop 2 two neighbours may be
exchanged. The frequency is in how many places such a match begins: the values of the smallest one
of these numbers.

All places are looked at together, in a few calls of numpy for each word of the phrase. If no word
stands twice, no two can have the same position, and it is enough that each has one near enough.
Else positions have to be chosen. All numbers of a word in the phrase may be equally far out of
place, so they have positions of their own if and only if from the place of any of them to the reach
of any later one there are as many positions as numbers (Hall's theorem, on intervals). And one of
them can be at the start itself if no earlier ones need all that is in their reach, the start with
it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial, reduce
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from driftline.index.postings.packing import Numbers, in_both
from driftline.index.postings.parts import Part, Postings

Places = NDArray[np.int64]
"""(version, position) in one number each, ascending: the position is in the low bits."""

Positions = Mapping[str, Sequence[int]] | Mapping[str, Places]
"""Of each word of a text."""

Mask = NDArray[np.bool_]

VERSION = 1 << 32
"""One version further, in places. A position may be smaller than its word's number in the phrase,
so a place may seem to lie in the version before: `_SHIFT` keeps that apart."""

_SHIFT = 1 << 16
"""Above the number of words of every phrase and every slop."""

DENSE = 8
"""If a match can begin at more than one place in so many of a text, all are looked at: counting
words takes less than searching for them."""


class Group(NamedTuple):
    """One of the different words of a phrase: its numbers there, and its places."""

    numbers: list[int]
    places: Places


class Numbered(NamedTuple):
    """A word of a phrase, or a pair of words, and the number of its place there."""

    number: int
    postings: Postings


def phrase_in(part: Part, field: int, words: Sequence[str], slop: int) -> list[Numbered] | None:
    """What a part has to have at which places for a phrase; None: it has not all of it.

    Pairs take the place of their words, where the part keeps them: they are rarer. The same word is
    the same object.
    """
    found: dict[tuple[str, ...], Postings | None] = {}
    names: list[tuple[int, tuple[str, ...]]] = []
    in_pairs: set[int] = set()
    if not slop:
        for number, (first, second) in enumerate(pairwise(words)):
            if part.has_pair(field, first, second):
                found[first, second] = part.pair(field, first, second)
                names.append((number, (first, second)))
                in_pairs.update((number, number + 1))
    for number, word in enumerate(words):
        if number not in in_pairs:
            if (word,) not in found:
                found[word,] = part.postings(field, word)
            names.append((number, (word,)))
    phrase: list[Numbered] = []
    for number, name in names:
        if (postings := found[name]) is None:
            return None
        phrase.append(Numbered(number, postings))
    return phrase


def different(phrase: Sequence[Numbered]) -> list[Postings]:
    """What makes up a phrase, each once."""
    return list({id(postings): postings for _, postings in phrase}.values())


def steps(phrase: Sequence[Numbered], slop: int) -> int:
    """The most that finding a phrase takes: places that are read or looked at, each time."""
    if len(phrase) == 1:
        return 0
    often = {id(each): int(each.frequencies.sum(dtype="i8")) for each in different(phrase)}
    places = [often[id(postings)] for _, postings in phrase]
    return sum(often.values()) + len(places) * min(sum(places), (slop + 1) * min(places))


def find_phrase(phrase: Sequence[Numbered], slop: int, count: int) -> tuple[Numbers, Numbers]:
    """(ordinals, frequencies) of a phrase among the first `count` versions of a part."""
    common: Numbers = reduce(_intersect, (each.ordinals for each in different(phrase)))
    common = common[: np.searchsorted(common, count)]
    if len(phrase) == 1:
        return common, phrase[0].postings.frequencies[: len(common)]
    groups = [
        Group([number for number, other in phrase if other is each], _places(each, common))
        for each in different(phrase)
    ]
    begins, _ = _begins(groups, slop)
    rows, frequencies = np.unique(begins // VERSION, return_counts=True)
    return common[rows], frequencies.astype(np.uint32)


def _intersect(ours: Numbers, theirs: Numbers) -> Numbers:
    rows, _ = in_both(ours, theirs)
    return ours[rows]


def _places(word: Postings, common: Numbers) -> Places:
    """The places of a word in versions that have all words."""
    rows = np.searchsorted(word.ordinals, common)
    positions, offsets = word.positions(rows)
    versions = np.repeat(np.arange(len(rows), dtype=np.int64), np.diff(offsets))
    return versions * VERSION + positions + _SHIFT


def _grouped(words: Sequence[str]) -> list[list[int]]:
    """The numbers of each different word, in order."""
    numbers: dict[str, list[int]] = {}
    for number, word in enumerate(words):
        numbers.setdefault(word, []).append(number)
    return list(numbers.values())


# Where matches begin.


def _begins(groups: Sequence[Group], slop: int) -> tuple[Places, Places]:
    """The starts of all matches, and which number of the phrase can be at each of them."""
    rarest = min(groups, key=lambda group: len(group.places))
    first = rarest.numbers[0]
    if (slop + 1) * len(rarest.places) <= _looked_at(groups):
        back = np.arange(first + slop, first - 1, -1)
        starts = _together([(rarest.places[:, None] - back).ravel()])
    else:
        starts = _together([each.places - number for each in groups for number in each.numbers])
    for group in groups:
        for number in group.numbers:
            starts = _near(group.places, starts, number, slop)
    if not slop or not len(starts):
        return starts, np.full(len(starts), first)
    fits, fixed = _fitting(
        [(group.numbers, partial(_below, group.places, starts)) for group in groups], slop
    )
    return starts[fits], fixed[fits]


def _looked_at(groups: Sequence[Group]) -> int:
    """The places of all words of a phrase."""
    return sum(len(group.numbers) * len(group.places) for group in groups)


def _together(places: Sequence[Places]) -> Places:
    """All places, ascending, each once. `np.unique` hashes them, which takes 50 times as long."""
    found = np.concatenate(places)
    found.sort(kind="stable")
    return found[np.diff(found, prepend=-VERSION) > 0]


def _near(places: Places, starts: Places, number: int, slop: int) -> Places:
    """The starts from which on there is a place for a number, within the slop."""
    if not len(places):
        return places
    wanted = starts + number
    at = np.searchsorted(places, wanted)
    beyond = at == len(places)
    at[beyond] = 0
    near: Places = starts[~beyond & (places[at] <= wanted + slop)]
    return near


def _below(places: Places, starts: Places, number: int) -> Places:
    """For each start, how many places of a word there are before that of a number."""
    return np.searchsorted(places, starts + number)


def _fitting(
    groups: Sequence[tuple[list[int], Callable[[int], Places]]], slop: int
) -> tuple[Mask, Places]:
    """At which starts a match begins, and a number of the phrase that can be there.

    `groups`: the numbers of each word, and what gives the places `_below` of them.
    """
    fits: Mask = np.ones(len(groups[0][1](0)), np.bool_)
    fixed = np.full(len(fits), -1, np.int32)
    for numbers, below in groups:
        tight = np.full(len(fits), -slop - 1, np.int32)
        """The last number up to which all that is in reach is needed."""
        before: Places | None = None
        for which, number in enumerate(numbers):
            low = below(number) - which
            can = (below(number + 1) - which > low) & (tight < number - slop)
            np.copyto(fixed, number, where=can & (fixed < 0))
            before = low if before is None else np.maximum(before, low)
            spare = below(number + slop + 1) - (which + 1) - before
            fits &= spare >= 0
            np.copyto(tight, number, where=spare == 0)
    return fits & (fixed >= 0), fixed.astype(np.int64)


# In one text.


def is_in_text(words: Sequence[str], slop: int, positions: Positions) -> bool:
    """Whether a text has a phrase. `positions`: of each word of the text."""
    groups = _groups_in(words, positions)
    return bool(groups) and len(_begins_in(groups, slop)[0]) > 0


def in_text(words: Sequence[str], slop: int, positions: Positions) -> frozenset[int]:
    """The positions in a text at which a word of a phrase is part of a match.

    Of the matches that begin in one place it is one. `positions`: of each word of the text.
    """
    groups = _groups_in(words, positions)
    if not groups:
        return frozenset()
    starts, fixed = _begins_in(groups, slop)
    found: set[int] = set()
    for group in groups:
        for chosen in _chosen(group, starts, fixed):
            found.update(chosen.tolist())
    return frozenset(found)


def _groups_in(words: Sequence[str], positions: Positions) -> list[Group]:
    """The words of a phrase in a text; none, if it has not all of them."""
    if any(word not in positions for word in words):
        return []
    return [
        Group(numbers, np.asarray(positions[words[numbers[0]]], np.int64))
        for numbers in _grouped(words)
    ]


def _begins_in(groups: Sequence[Group], slop: int) -> tuple[Places, Places]:
    """`_begins`, in one text."""
    count = sum(len(group.numbers) for group in groups)
    length = 1 + max(int(group.places[-1]) for group in groups)
    least = min(len(group.places) for group in groups)
    if min(_looked_at(groups), (slop + 1) * least) * DENSE < length:
        return _begins(groups, slop)
    size = length + 2 * count + slop + 1
    if not slop:
        found = np.ones(length, np.bool_)
        for group in groups:
            there = np.zeros(size, np.bool_)
            there[group.places] = True
            for number in group.numbers:
                found &= there[number : number + length]
        starts = np.flatnonzero(found)
        return starts, np.zeros(len(starts), np.int64)

    def counted(places: Places) -> Callable[[int], Places]:
        there = np.zeros(size, np.int32)
        there[places + count] = 1
        below = there.cumsum(dtype=np.int32)
        return lambda number: below[number : number + length + count - 1]

    fits, fixed = _fitting([(group.numbers, counted(group.places)) for group in groups], slop)
    return np.flatnonzero(fits) - (count - 1), fixed[fits]


def _chosen(group: Group, starts: Places, fixed: Places) -> Iterator[Places]:
    """The positions of each number of a word in a match from each start on.

    Each takes the first one that is left, but for the number that is at the start.
    """
    places = group.places
    taken = np.where(np.isin(fixed, group.numbers), starts + fixed, -1)
    free = starts - starts
    for number in group.numbers:
        at = np.maximum(_below(places, starts, number), free)
        at += (fixed != number) & (places[np.minimum(at, len(places) - 1)] == taken)
        at = np.where(fixed == number, _below(places, starts, number), at)
        free = np.where(fixed == number, free, at + 1)
        yield places[at]
