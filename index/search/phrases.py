"""Phrase matching: the versions that contain a phrase, and its frequency in each.

A phrase of words w0 w1 ... occurs where the words have positions p, p + 1, ... Its frequency is the
number of such p. Each position is packed into one integer with the number of its version, so that a
few numpy calls process the positions in many versions.
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
"""version * VERSION_STRIDE + position, ascending; within one text, just the positions."""

VERSION_STRIDE = 1 << 32
"""Difference between the packed positions of adjacent versions; larger than any position."""

SCAN_RATIO = 8
"""`starts_in_text` scans all positions if even the rarest word is at 1 / SCAN_RATIO of them."""


class PhraseTerm(NamedTuple):
    """A word or a pair of words of a phrase; `offset`: its position in the phrase."""

    offset: int
    postings: Postings


class TermPositions(NamedTuple):
    """Positions in texts of a word or pair of a phrase; `offsets`: its positions in the phrase."""

    offsets: list[int]
    positions: PackedPositions


def phrase_terms(part: SegmentReader, field: int, words: Sequence[str]) -> list[PhraseTerm] | None:
    """Return the terms of a phrase with their postings in a part; None if the part lacks a term.

    If the part has postings for two adjacent words as a pair, the pair replaces both words. Equal
    words or pairs share one `Postings` object.
    """
    postings_of: dict[tuple[str, ...], Postings | None] = {}
    terms: list[tuple[int, tuple[str, ...]]] = []
    in_pairs: set[int] = set()
    for offset, (first, second) in enumerate(pairwise(words)):
        if part.has_pair(field, first, second):
            postings_of[first, second] = part.pair(field, first, second)
            terms.append((offset, (first, second)))
            in_pairs.update((offset, offset + 1))
    for offset, word in enumerate(words):
        if offset not in in_pairs:
            if (word,) not in postings_of:
                postings_of[word,] = part.postings(field, word)
            terms.append((offset, (word,)))
    phrase: list[PhraseTerm] = []
    for offset, term in terms:
        if (postings := postings_of[term]) is None:
            return None
        phrase.append(PhraseTerm(offset, postings))
    return phrase


def distinct_postings(phrase: Sequence[PhraseTerm]) -> list[Postings]:
    """Return the distinct postings of a phrase."""
    return list({id(postings): postings for _, postings in phrase}.values())


def steps(phrase: Sequence[PhraseTerm]) -> int:
    """Return an upper bound of the number of positions read or compared to find a phrase."""
    if len(phrase) == 1:
        return 0
    counts = {id(each): int(each.frequencies.sum(dtype="i8")) for each in distinct_postings(phrase)}
    rarest_count = min(counts[id(postings)] for _, postings in phrase)
    return sum(counts.values()) + len(phrase) * rarest_count


def find_phrase(phrase: Sequence[PhraseTerm], count: int) -> tuple[Numbers, Numbers]:
    """Return (ordinals, frequencies) of a phrase among the first `count` versions of a part."""
    common: Numbers = reduce(_intersect, (each.ordinals for each in distinct_postings(phrase)))
    common = common[: np.searchsorted(common, count)]
    if len(phrase) == 1:
        return common, phrase[0].postings.frequencies[: len(common)]
    terms = [
        TermPositions([offset for offset, other in phrase if other is each], _packed(each, common))
        for each in distinct_postings(phrase)
    ]
    rows, frequencies = np.unique(_starts(terms) // VERSION_STRIDE, return_counts=True)
    return common[rows], frequencies.astype(np.uint32)


def starts_in_text(
    words: Sequence[str], positions: Mapping[str, Sequence[int] | PackedPositions]
) -> PackedPositions:
    """Return the positions in a text at which a phrase starts.

    `words`: words of the phrase; `positions`: word of the text -> its positions, ascending.
    """
    offsets: dict[str, list[int]] = {}
    for offset, word in enumerate(words):
        offsets.setdefault(word, []).append(offset)
    if any(word not in positions for word in offsets):
        return np.zeros(0, np.int64)
    terms = [
        TermPositions(word_offsets, np.asarray(positions[word], np.int64))
        for word, word_offsets in offsets.items()
    ]
    length = 1 + max(int(term.positions[-1]) for term in terms)
    if min(len(term.positions) for term in terms) * SCAN_RATIO < length:
        return _starts(terms)
    is_start = np.ones(length, np.bool_)
    for term in terms:
        has_term = np.zeros(length + len(words), np.bool_)
        has_term[term.positions] = True
        for offset in term.offsets:
            is_start &= has_term[offset : offset + length]
    return np.flatnonzero(is_start)


def _starts(terms: Sequence[TermPositions]) -> PackedPositions:
    """Return the packed positions at which a phrase starts, given those of its terms."""
    rarest = min(terms, key=lambda term: len(term.positions))
    starts = rarest.positions - rarest.offsets[0]
    for term in terms:
        for offset in term.offsets:
            if term is not rarest or offset != rarest.offsets[0]:
                rows, _ = intersect_indices(starts + offset, term.positions)
                starts = starts[rows]
    return starts


def _intersect(left: Numbers, right: Numbers) -> Numbers:
    rows, _ = intersect_indices(left, right)
    return left[rows]


def _packed(postings: Postings, common: Numbers) -> PackedPositions:
    """Return the packed positions of a word or pair in some of the versions that contain it.

    `common`: ordinals of these versions. The result numbers them 0, 1, ...
    """
    rows = np.searchsorted(postings.ordinals, common)
    positions, offsets = postings.positions(rows)
    versions = np.repeat(np.arange(len(rows), dtype=np.int64), np.diff(offsets))
    return versions * VERSION_STRIDE + positions
