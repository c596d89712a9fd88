"""Which watches are refused because of what the longest text could take."""

from __future__ import annotations

import pytest

from driftline.index.query.bound import AllOf, AnyOf, BoundPhrase, Part, Without, Word
from driftline.index.watches.costs import SLOPPY, WORDS_MAX, WatchTooCostly, check

MOST = WORDS_MAX // SLOPPY


def phrase(words: int, slop: int, field: int = 0) -> BoundPhrase:
    return BoundPhrase(field, f"f{field}", ("tea",) * words, slop)


@pytest.mark.parametrize(
    "query",
    [
        Word(0, "f0", "tea"),
        phrase(WORDS_MAX, 0),
        phrase(MOST, 100),
        AllOf((phrase(MOST - 2, 1), Without(phrase(2, 2)))),
        AnyOf((phrase(MOST, 1, 0), phrase(MOST, 1, 1), phrase(WORDS_MAX, 0, 2))),
    ],
)
def test_a_watch_can_have_some_phrases_in_each_field(query: Part) -> None:
    check(query)


@pytest.mark.parametrize(
    ("query", "leaf"),
    [
        (phrase(WORDS_MAX + 1, 0), phrase(WORDS_MAX + 1, 0)),
        (phrase(MOST + 1, 1), phrase(MOST + 1, 1)),
        (Without(AnyOf((phrase(2, 2), phrase(MOST - 1, 1)))), phrase(MOST - 1, 1)),
        (AllOf((phrase(MOST, 1, 1), phrase(2, 0, 1), phrase(MOST, 1))), phrase(MOST, 1, 1)),
        (AnyOf(tuple(phrase(20, slop) for slop in range(60, 100))), phrase(20, 60)),
    ],
)
def test_a_watch_that_could_take_long_is_refused(query: Part, leaf: Part) -> None:
    with pytest.raises(WatchTooCostly, match="leave") as refused:
        check(query)
    assert refused.value.leaf == str(leaf)
