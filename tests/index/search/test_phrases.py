"""Phrase search against trying all positions; fuzzy words against the textbook distance."""

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


class LetterPostings:
    """Postings of a letter in texts."""

    dense_frequencies = None

    def __init__(self, texts: list[str], word: str) -> None:
        found = [[i for i, letter in enumerate(text) if letter == word] for text in texts]
        documents_with_word = [i for i, positions in enumerate(found) if positions]
        self._positions = [found[i] for i in documents_with_word]
        self.count = len(documents_with_word)
        self.ordinals = np.array(documents_with_word, dtype=np.uint32)
        self.frequencies = np.array(list(map(len, self._positions)), dtype=np.uint32)

    def positions(self, rows: NDArray[np.intp]) -> tuple[NDArray[np.uint32], NDArray[np.intp]]:
        chosen = [self._positions[row] for row in rows]
        flat = np.array([p for each in chosen for p in each], dtype=np.uint32)
        return flat, np.cumsum([0, *map(len, chosen)], dtype=np.intp)


def numbered(words: dict[str, LetterPostings], phrase: str) -> list[PhraseTerm]:
    """Return the terms of a phrase whose words are letters."""
    return [PhraseTerm(number, words[word]) for number, word in enumerate(phrase)]


@given(TEXTS, st.text("abc", min_size=2, max_size=4), st.integers(0, 6))
def test_phrases_equal_a_search_of_all_positions(texts: list[str], phrase: str, count: int) -> None:
    words = {word: LetterPostings(texts, word) for word in phrase}
    ordinals, frequencies = find_phrase(numbered(words, phrase), count)
    expected = [len(phrase_starts(tuple(text), tuple(phrase))) for text in texts[:count]]
    assert dict(zip(ordinals.tolist(), frequencies.tolist(), strict=True)) == {
        i: occurrences for i, occurrences in enumerate(expected) if occurrences
    }


@given(st.text("abc", max_size=9), st.text("abc", min_size=2, max_size=4))
def test_phrase_is_found_within_a_single_text(text: str, phrase: str) -> None:
    expected = phrase_starts(tuple(text), tuple(phrase))
    for offset in (0, 5_000):
        positions = {
            word: [i + offset for i, each in enumerate(text) if each == word] for word in text
        }
        found = starts_in_text(phrase, positions).tolist()
        assert found == [start + offset for start in expected]


@given(TEXTS, st.text("abc", min_size=2, max_size=6))
def test_phrase_search_takes_at_most_the_counted_steps(texts: list[str], phrase: str) -> None:
    words = {word: LetterPostings(texts, word) for word in phrase}
    steps_max = steps(numbered(words, phrase))
    step_count = 0

    def counting_searchsorted(places: PackedPositions, starts: PackedPositions) -> NDArray[np.intp]:
        nonlocal step_count
        step_count += np.size(starts)
        return searchsorted(places, starts)

    searchsorted = np.searchsorted
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(np, "searchsorted", counting_searchsorted)
        find_phrase(numbered(words, phrase), len(texts))
    assert step_count <= steps_max + 2 * sum(word.count for word in words.values()) + 1


WORDS = st.text("ab", max_size=6)
ODD = st.text("ab\0\ud7ff\ue000\U0010ffff", min_size=1, max_size=6)


@given(WORDS, WORDS)
def test_near_is_a_distance_of_at_most_one(word: str, other: str) -> None:
    assert is_near(word, other) == (distance(word, other) <= 1)


@given(st.lists(ODD, max_size=40), ODD)
@example(["ab", "b", "abb"], "aab")
def test_near_words_are_returned_once(words: list[str], word: str) -> None:
    tail = MemorySegment(0, 1, ())
    tail.add(1, DocumentVersion("c", "1", (words_of(words),), (), b""))
    near = sorted({other for other in words if distance(word, other) <= 1})
    assert sorted(near_words(tail, 0, word)) == near
    with TemporaryDirectory() as directory:
        segment = write([tail], Path(directory, "segment"))
        assert sorted(near_words(segment, 0, word)) == near
