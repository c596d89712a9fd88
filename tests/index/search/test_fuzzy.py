"""Words that are one letter apart, against the textbook's distance."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import example, given
from hypothesis import strategies as st

from driftline.index.documents.versions import DocumentVersion, words_of
from driftline.index.postings.memory_segment import MemorySegment
from driftline.index.postings.merging import write
from driftline.index.search.fuzzy import is_near, near_words
from tests.index.search.model import distance

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
