"""Snippets, against trying every piece of a text."""

from __future__ import annotations

import json
from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from driftline.index.documents.analysis import analyser
from driftline.index.documents.schema import DEFAULT
from driftline.index.query.binding import bind
from driftline.index.query.bound import BoundPhrase, Near, Scoring, Word, WordsFrom
from driftline.index.query.parsing import parse
from driftline.index.search.results.snippets import LENGTH, READ_MAX, snippet, snippets
from tests.index.search.model import frequency

TEXT = st.lists(
    st.sampled_from(("a", "b", "ab", "É", "Ab", "東京都", "京", "bbbbb", ".", ", ", "\n", "İ")),
    max_size=40,
).flatmap(lambda parts: st.sampled_from((" ", "")).map(lambda between: between.join(parts)))
WORD = st.sampled_from(("a", "b", "ab", "e", "東京", "京", "bbbbb"))
LEAF: st.SearchStrategy[Scoring] = st.one_of(
    st.builds(Word, st.just(0), st.just("f"), WORD),
    st.builds(WordsFrom, st.just(0), st.just("f"), WORD),
    st.builds(Near, st.just(0), st.just("f"), WORD),
    st.builds(
        BoundPhrase,
        st.just(0),
        st.just("f"),
        st.lists(WORD, min_size=2, max_size=3).map(tuple),
        st.integers(0, 2),
    ),
)


def of_leaf(leaf: Scoring, words: tuple[str, ...]) -> set[int]:
    """The positions that can be part of a match."""
    if not isinstance(leaf, BoundPhrase):
        return {i for i, word in enumerate(words) if frequency(leaf, (word,))}
    places = [[i for i, word in enumerate(words) if word == wanted] for wanted in leaf.words]
    found: set[int] = set()
    for chosen in product(*places):
        moved = [place - number for number, place in enumerate(chosen)]
        if len(set(chosen)) == len(chosen) and max(moved) - min(moved) <= leaf.slop:
            found |= set(chosen)
    return found


@given(
    TEXT,
    st.sampled_from(("plain", "folded", "cjk")),
    st.lists(LEAF, max_size=4),
    st.integers(5, 30),
)
def test_a_snippet_is_the_best_piece(
    text: str, name: str, leaves: list[Scoring], length: int
) -> None:
    by = analyser(name)
    spans = [(word, *at) for word, at in zip(by.words(text), by.places(text), strict=True)]
    found = snippet(text, by, leaves, length)
    begin, end = found.start, found.start + len(found.text)
    assert found.text == text[begin:end]
    assert len(found.text) <= length
    assert found.more == (end < len(text))
    words = tuple(word for word, _, _ in spans)
    matching = set().union(*(of_leaf(leaf, words) for leaf in leaves))
    marked = {i for start, stop in found.marks for i in range(begin + start, begin + stop)}

    def different(first: int, last: int) -> int:
        return len({spans[i][0] for i in matching if first <= spans[i][1] and spans[i][2] <= last})

    can_be = {i for match in matching for i in range(*spans[match][1:])}
    assert marked <= can_be
    if all(not isinstance(leaf, BoundPhrase) for leaf in leaves):
        for i in matching:
            if begin <= spans[i][1] and spans[i][2] <= end:
                assert marked >= set(range(*spans[i][1:]))
        most = max((different(at, at + length) for at in range(len(text))), default=0)
        assert different(begin, end) == most
        starts = (spans[i][1] for i in sorted(matching))
        first = next((at for at in starts if different(at, at + length) == most), begin)
        assert begin <= first < end or not most
    if not matching:
        assert (begin, found.marks) == (0, ())
    else:
        assert found.marks
    assert all(a[1] < b[0] for a, b in zip(found.marks, found.marks[1:], strict=False))


def test_a_document_has_a_snippet_of_each_text() -> None:
    long = "word " * 100 + "Of CAFÉS, big cats and dogs. " + "word " * 100
    document = json.dumps({"other": 1, "text": long, "title": "Cats; a Cat, Catalogues"})
    query = bind(parse('"big cats" OR cat* OR CAFES~'), DEFAULT.collections["documents"])
    found = snippets(document.encode(), DEFAULT.collections["documents"], query)
    assert list(found) == ["title", "text"]

    def marked(name: str) -> list[str]:
        return [found[name].text[start:end] for start, end in found[name].marks]

    assert marked("title") == ["Cats", "Cat", "Catalogues"]
    assert marked("text") == ["CAFÉS", "big", "cats"]
    piece = found["text"]
    assert piece.more
    assert 0.9 * LENGTH < len(piece.text) <= LENGTH
    assert abs(piece.marks[0][0] - (len(piece.text) - piece.marks[-1][1])) < 10, "in the middle"


def test_a_huge_text_is_read_to_a_limit() -> None:
    text = "a" * (READ_MAX + 5) + " b"
    assert snippet(text, analyser("plain"), [Word(0, "f", "b")]).text == "a" * LENGTH
    assert snippet(text, analyser("plain"), [WordsFrom(0, "f", "a")]).marks == ()


def test_the_best_piece_is_the_first_of_the_best() -> None:
    text = "cat and mouse or cat and dog or dog and cat"
    leaves = [Word(0, "f", "cat"), Word(0, "f", "dog")]
    found = snippet(text, analyser("plain"), leaves, 11)
    assert (found.text, found.marks) == ("cat and dog", ((0, 3), (8, 11)))
    assert snippet(text, analyser("plain"), leaves, 10).text == "cat and"


def test_a_match_at_the_end_has_all_of_the_piece_before_it() -> None:
    text = "word " * 100 + "cat"
    found = snippet(text, analyser("plain"), [Word(0, "f", "cat")])
    assert (len(found.text), found.more) == (158, False)


def test_a_match_that_is_longer_than_a_piece_is_marked_as_far_as_it_is_seen() -> None:
    text = "b " + "a" * 300 + " c"
    found = snippet(text, analyser("plain"), [WordsFrom(0, "f", "aa")])
    assert (found.text, found.start, found.marks) == ("a" * LENGTH, 2, ((0, LENGTH),))


def test_marks_that_touch_are_one() -> None:
    found = snippet("x a京 b", analyser("cjk"), [Word(0, "f", "a"), Word(0, "f", "京")])
    assert found.marks == ((2, 4),)
