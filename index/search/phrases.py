"""Phrase matching: the versions that contain a phrase, and its frequency in each.

A phrase of words w0 w1 ... occurs where the words have positions p, p + 1, ... Its frequency is the
number of such p. A *place* is a version and a position in it, packed into one number. All places of
a word are processed together, in a few numpy calls.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from driftline.index.postings.packing import Numbers, intersect_indices
from driftline.index.postings.segment_reader import Postings, SegmentReader

PackedPositions = NDArray[np.int64]
"""(version, position) packed into one number, ascending; the position is in the low bits."""

VERSION_STRIDE = 1 << 32
"""Difference between the places of adjacent versions; larger than any position."""

DENSE = 8
"""If the rarest word is at one in this many positions or more, all positions are scanned."""


class Group(NamedTuple):
    """One distinct word or pair of a phrase; `numbers`: its positions in the phrase."""

    numbers: list[int]
    places: PackedPositions


class Numbered(NamedTuple):
    """A word or a pair of words of a phrase; `number`: its position in the phrase."""

    number: int
    postings: Postings


def phrase_in(part: SegmentReader, field: int, words: Sequence[str]) -> list[Numbered] | None:
    """Return the postings that a part needs for a phrase; None if one is missing.

    If the part has postings for two adjacent words as a pair, the pair replaces both words. Equal
    words or pairs share one `Postings` object.
    """
    found: dict[tuple[str, ...], Postings | None] = {}
    names: list[tuple[int, tuple[str, ...]]] = []
    in_pairs: set[int] = set()
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


def distinct_postings(phrase: Sequence[Numbered]) -> list[Postings]:
    """Return the distinct postings of a phrase."""
    return list({id(postings): postings for _, postings in phrase}.values())


def steps(phrase: Sequence[Numbered]) -> int:
    """Return an upper bound of the number of places read or compared to find a phrase."""
    if len(phrase) == 1:
        return 0
    often = {id(each): int(each.frequencies.sum(dtype="i8")) for each in distinct_postings(phrase)}
    rarest = min(often[id(postings)] for _, postings in phrase)
    return sum(often.values()) + len(phrase) * rarest


def find_phrase(phrase: Sequence[Numbered], count: int) -> tuple[Numbers, Numbers]:
    """Return (ordinals, frequencies) of a phrase among the first `count` versions of a part."""
    common: Numbers = reduce(_intersect, (each.ordinals for each in distinct_postings(phrase)))
    common = common[: np.searchsorted(common, count)]
    if len(phrase) == 1:
        return common, phrase[0].postings.frequencies[: len(common)]
    groups = [
        Group([number for number, other in phrase if other is each], _places(each, common))
        for each in distinct_postings(phrase)
    ]
    rows, frequencies = np.unique(_starts(groups) // VERSION_STRIDE, return_counts=True)
    return common[rows], frequencies.astype(np.uint32)


def starts_in_text(
    words: Sequence[str], positions: Mapping[str, Sequence[int] | PackedPositions]
) -> PackedPositions:
    """Return the positions in a text at which a phrase starts.

    `positions`: word of the text -> its positions, ascending.
    """
    numbers: dict[str, list[int]] = {}
    for number, word in enumerate(words):
        numbers.setdefault(word, []).append(number)
    if any(word not in positions for word in numbers):
        return np.zeros(0, np.int64)
    groups = [
        Group(of_word, np.asarray(positions[word], np.int64)) for word, of_word in numbers.items()
    ]
    length = 1 + max(int(group.places[-1]) for group in groups)
    if min(len(group.places) for group in groups) * DENSE < length:
        return _starts(groups)
    found = np.ones(length, np.bool_)
    for group in groups:
        there = np.zeros(length + len(words), np.bool_)
        there[group.places] = True
        for number in group.numbers:
            found &= there[number : number + length]
    return np.flatnonzero(found)


def _starts(groups: Sequence[Group]) -> PackedPositions:
    """Return the places at which a phrase starts, given the places of its words."""
    rarest = min(groups, key=lambda group: len(group.places))
    starts = rarest.places - rarest.numbers[0]
    for group in groups:
        for number in group.numbers:
            if group is not rarest or number != rarest.numbers[0]:
                rows, _ = intersect_indices(starts + number, group.places)
                starts = starts[rows]
    return starts


def _intersect(ours: Numbers, theirs: Numbers) -> Numbers:
    rows, _ = intersect_indices(ours, theirs)
    return ours[rows]


def _places(word: Postings, common: Numbers) -> PackedPositions:
    """Return the places of a word in versions that contain it; `common`: their ordinals.

    Places number these versions 0, 1, ... in the order of `common`.
    """
    rows = np.searchsorted(word.ordinals, common)
    positions, offsets = word.positions(rows)
    versions = np.repeat(np.arange(len(rows), dtype=np.int64), np.diff(offsets))
    return versions * VERSION_STRIDE + positions
