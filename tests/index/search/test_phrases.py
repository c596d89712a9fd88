"""Phrases, against trying all positions; words that are one letter apart, against the textbook."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from driftline.index.documents.versions import DocumentVersion, words_of
from driftline.index.postings.memory_segment import MemorySegment
from driftline.index.postings.merging import write
from driftline.index.search.fuzzy import is_near, near_words
from driftline.index.search.phrases import (
    PackedPositions,
    PhraseTerm,
    find_phrase,
    starts_in_text,
    steps,
)
from tests.index.search.model import distance, phrase_starts

TEXTS = st.lists(st.text("abc", max_size=7), max_size=5)


class Word:
    """The postings of a letter in texts."""

    dense_frequencies = None

    def __init__(self, texts: list[str], word: str) -> None:
        found = [[i for i, letter in enumerate(text) if letter == word] for text in texts]
        having = [i for i, positions in enumerate(found) if positions]
        self._positions = [found[i] for i in having]
        self.count = len(having)
        self.ordinals = np.array(having, dtype=np.uint32)
        self.frequencies = np.array(list(map(len, self._positions)), dtype=np.uint32)

    def positions(self, rows: NDArray[np.intp]) -> tuple[NDArray[np.uint32], NDArray[np.intp]]:
        chosen = [self._positions[row] for row in rows]
        flat = np.array([p for each in chosen for p in each], dtype=np.uint32)
        return flat, np.cumsum([0, *map(len, chosen)], dtype=np.intp)


def numbered(words: dict[str, Word], phrase: str) -> list[PhraseTerm]:
    """A phrase of letters."""
    return [PhraseTerm(number, words[word]) for number, word in enumerate(phrase)]


@given(TEXTS, st.text("abc", min_size=2, max_size=4), st.integers(0, 6))
def test_phrases_are_where_words_follow_each_other(
    texts: list[str], phrase: str, count: int
) -> None:
    words = {word: Word(texts, word) for word in phrase}
    ordinals, frequencies = find_phrase(numbered(words, phrase), count)
    expected = [len(phrase_starts(tuple(text), tuple(phrase))) for text in texts[:count]]
    assert dict(zip(ordinals.tolist(), frequencies.tolist(), strict=True)) == {
        i: often for i, often in enumerate(expected) if often
    }


@given(st.text("abc", max_size=9), st.text("abc", min_size=2, max_size=4))
def test_phrase_is_found_within_a_single_text(text: str, phrase: str) -> None:
    expected = phrase_starts(tuple(text), tuple(phrase))
    for afar in (0, 5_000):
        positions = {
            word: [i + afar for i, each in enumerate(text) if each == word] for word in text
        }
        found = starts_in_text(phrase, positions).tolist()
        assert found == [start + afar for start in expected]


@given(TEXTS, st.text("abc", min_size=2, max_size=6))
def test_a_phrase_takes_no_more_steps_than_are_counted(texts: list[str], phrase: str) -> None:
    words = {word: Word(texts, word) for word in phrase}
    most = steps(numbered(words, phrase))
    looked_at = 0

    def searched(places: PackedPositions, starts: PackedPositions) -> NDArray[np.intp]:
        nonlocal looked_at
        looked_at += np.size(starts)
        return searchsorted(places, starts)

    searchsorted = np.searchsorted
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(np, "searchsorted", searched)
        find_phrase(numbered(words, phrase), len(texts))
    assert looked_at <= most + 2 * sum(word.count for word in words.values()) + 1


WORDS = st.text("ab", max_size=6)
ODD = st.text("ab\0\ud7ff\ue000\U0010ffff", min_size=1, max_size=6)


@given(WORDS, WORDS)
def test_near_is_a_distance_of_at_most_one(word: str, other: str) -> None:
    assert is_near(word, other) == (distance(word, other) <= 1)


@given(st.lists(ODD, max_size=40), ODD)
@example(["ab", "b", "abb"], "aab")
def test_near_words_are_found_each_once(words: list[str], word: str) -> None:
    tail = MemorySegment(0, 1, ())
    tail.add(1, DocumentVersion("c", "1", (words_of(words),), (), b""))
    near = sorted({other for other in words if distance(word, other) <= 1})
    assert sorted(near_words(tail, 0, word)) == near
    with TemporaryDirectory() as directory:
        segment = write([tail], Path(directory, "segment"))
        assert sorted(near_words(segment, 0, word)) == near
