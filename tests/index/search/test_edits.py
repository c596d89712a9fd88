"""Words that are one letter apart, against the textbook's distance."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from driftline.index.search.edits import is_near
from tests.index.search.model import distance

WORDS = st.text("ab", max_size=6)


@given(WORDS, WORDS)
def test_near_is_a_distance_of_at_most_one(word: str, other: str) -> None:
    assert is_near(word, other) == (distance(word, other) <= 1)
