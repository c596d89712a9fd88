"""Phrases, against trying all positions."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from sys import setprofile
from types import FrameType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from driftline.index.search.phrases import Numbered, Places, find_phrase, in_text, is_in_text, steps
from tests.index.search.model import phrase_frequency

TEXTS = st.lists(st.text("abc", max_size=7), max_size=5)


class Word:
    """The postings of a letter in texts."""

    often = None

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


def numbered(words: dict[str, Word], phrase: str) -> list[Numbered]:
    """A phrase of letters."""
    return [Numbered(number, words[word]) for number, word in enumerate(phrase)]


@given(TEXTS, st.text("abc", min_size=2, max_size=4), st.integers(0, 4), st.integers(0, 6))
def test_phrases_are_where_positions_can_be_chosen(
    texts: list[str], phrase: str, slop: int, count: int
) -> None:
    words = {word: Word(texts, word) for word in phrase}
    ordinals, frequencies = find_phrase(numbered(words, phrase), slop, count)
    expected = {
        i: phrase_frequency(tuple(text), tuple(phrase), slop)
        for i, text in enumerate(texts[:count])
    }
    assert dict(zip(ordinals.tolist(), frequencies.tolist(), strict=True)) == {
        i: often for i, often in expected.items() if often
    }


@pytest.mark.parametrize(("slop", "found"), [(0, False), (1, False), (2, True)])
def test_exchanged_neighbours_need_a_slop_of_two(slop: int, found: bool) -> None:
    words = {letter: Word(["ba"], letter) for letter in "ab"}
    assert bool(len(find_phrase(numbered(words, "ab"), slop, 1)[0])) == found


@given(st.text("abc", max_size=9), st.text("abc", min_size=2, max_size=4), st.integers(0, 4))
def test_of_each_match_in_a_text_all_words_are_found(text: str, phrase: str, slop: int) -> None:
    positions = {word: [i for i, each in enumerate(text) if each == word] for word in text}
    found = in_text(phrase, slop, positions)
    begins = set()
    for chosen in product(*(positions.get(word, []) for word in phrase)):
        moved = [place - number for number, place in enumerate(chosen)]
        fits = len(set(chosen)) == len(chosen) and max(moved) - min(moved) <= slop
        if fits and found >= set(chosen):
            begins.add(min(moved))
    assert len(begins) == phrase_frequency(tuple(text), tuple(phrase), slop)
    assert bool(found) == bool(begins)


@given(st.text("ab", max_size=9), st.text("ab", min_size=2, max_size=4), st.integers(0, 4))
def test_words_that_are_rare_in_a_text_are_found_as_well(text: str, phrase: str, slop: int) -> None:
    positions = {word: [i for i, each in enumerate(text) if each == word] for word in text}
    afar = {word: [place + 5_000 for place in places] for word, places in positions.items()}
    found = in_text(phrase, slop, afar)
    assert found == {place + 5_000 for place in in_text(phrase, slop, positions)}
    assert bool(found) == is_in_text(phrase, slop, afar) == is_in_text(phrase, slop, positions)


def calls(work: Callable[[], object]) -> int:
    """How many functions are called meanwhile."""
    count = 0

    def note(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    setprofile(note)
    try:
        work()
    finally:
        setprofile(None)
    return count


@pytest.mark.parametrize("slop", [0, 3, 100])
def test_a_text_of_any_length_takes_about_as_many_calls(slop: int) -> None:
    phrase = "aab" * 4

    def calls_for(text: str) -> tuple[int, int]:
        words = {word: Word([text], word) for word in phrase}
        positions = {word: words[word].positions(np.array([0]))[0].tolist() for word in phrase}
        return (
            calls(lambda: find_phrase(numbered(words, phrase), slop, 1)),
            calls(lambda: is_in_text(phrase, slop, positions)),
        )

    short, long = calls_for("aabcaab" * 100), calls_for("aabcaab" * 10_000)
    assert max(long) < 2 * min(short) + max(short)  # some are of the collector of garbage


@given(TEXTS, st.text("abc", min_size=2, max_size=6), st.integers(0, 4))
def test_a_phrase_takes_no_more_steps_than_are_counted(
    texts: list[str], phrase: str, slop: int
) -> None:
    words = {word: Word(texts, word) for word in phrase}
    most = steps(numbered(words, phrase), slop)
    looked_at = 0

    def searched(places: Places, starts: Places) -> NDArray[np.intp]:
        nonlocal looked_at
        looked_at += np.size(starts)
        return searchsorted(places, starts)

    searchsorted = np.searchsorted
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(np, "searchsorted", searched)
        find_phrase(numbered(words, phrase), slop, len(texts))
    postings = sum(word.count for word in words.values())
    assert looked_at <= 4 * most + 2 * postings + 1  # each number is looked up thrice, if they fit


def test_a_phrase_of_one_word_many_times_takes_no_time() -> None:
    words = {"a": Word(["a" * 30, "a" * 1999, "a" * 2100], "a")}
    assert find_phrase(numbered(words, "a" * 2000), 1, 3)[0].tolist() == [2]
    assert find_phrase(numbered(words, "a" * 31), 100, 1)[0].tolist() == []
