"""Snippets, against trying all pieces of a text."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from driftline.index.documents.analysis import analyser
from driftline.index.documents.schema import DEFAULT
from driftline.index.query.parsing import parse
from driftline.index.query.tree import Fuzzy, Phrase, Prefix, Scoring, Term
from driftline.index.search.results import LENGTH, snippet, snippets
from tests.index.search.model import frequency, phrase_starts

TEXT = st.lists(
    st.sampled_from(("a", "b", "ab", "É", "Ab", "東京都", "京", "bbbbb", ".", ", ", "\n", "İ")),
    max_size=40,
).flatmap(lambda parts: st.sampled_from((" ", "")).map(lambda between: between.join(parts)))
WORD = st.sampled_from(("a", "b", "ab", "e", "東京", "京", "bbbbb"))
LEAF: st.SearchStrategy[Scoring] = st.one_of(
    st.builds(Term, st.just(0), st.just("f"), WORD),
    st.builds(Prefix, st.just(0), st.just("f"), WORD),
    st.builds(Fuzzy, st.just(0), st.just("f"), WORD),
    st.builds(Phrase, st.just(0), st.just("f"), st.lists(WORD, min_size=2, max_size=3).map(tuple)),
)


def match_positions(leaf: Scoring, words: tuple[str, ...]) -> set[int]:
    """Return the positions of words that belong to a match."""
    if not isinstance(leaf, Phrase):
        return {i for i, word in enumerate(words) if frequency(leaf, (word,))}
    starts = phrase_starts(words, leaf.words)
    return {start + number for start in starts for number in range(len(leaf.words))}


@given(
    TEXT,
    st.sampled_from(("plain", "folded", "cjk")),
    st.lists(LEAF, max_size=4),
    st.integers(5, 30),
)
def test_snippet_is_the_piece_with_most_different_matches(
    text: str, name: str, leaves: list[Scoring], length: int
) -> None:
    by = analyser(name)
    spans = [(word, *at) for word, at in zip(by.words(text), by.word_spans(text), strict=True)]
    found = snippet(text, by, leaves, length)
    begin, end = found.start, found.start + len(found.text)
    assert found.text == text[begin:end]
    assert len(found.text) <= length
    assert found.more == (end < len(text))
    words = tuple(word for word, _, _ in spans)
    matching = set().union(*(match_positions(leaf, words) for leaf in leaves))
    marked = {i for start, stop in found.marks for i in range(begin + start, begin + stop)}

    def count_distinct_words(first: int, last: int) -> int:
        return len({spans[i][0] for i in matching if first <= spans[i][1] and spans[i][2] <= last})

    can_be = {i for match in matching for i in range(*spans[match][1:])}
    assert marked <= can_be
    if all(not isinstance(leaf, Phrase) for leaf in leaves):
        for i in matching:
            if begin <= spans[i][1] and spans[i][2] <= end:
                assert marked >= set(range(*spans[i][1:]))
        most = max((count_distinct_words(at, at + length) for at in range(len(text))), default=0)
        assert count_distinct_words(begin, end) == most
        starts = (spans[i][1] for i in sorted(matching))
        first = next((at for at in starts if count_distinct_words(at, at + length) == most), begin)
        assert begin <= first < end or not most
    if not matching:
        assert (begin, found.marks) == (0, ())
    else:
        assert found.marks
    assert all(a[1] < b[0] for a, b in zip(found.marks, found.marks[1:], strict=False))


def test_each_matching_text_field_has_a_snippet() -> None:
    long = "word " * 100 + "Of CAFÉS, big cats and dogs. " + "word " * 100
    document = json.dumps({"other": 1, "text": long, "title": "Cats; a Cat, Catalogues"})
    query = parse('"big cats" OR cat* OR CAFES~', DEFAULT.collections["documents"])
    found = snippets(document.encode(), DEFAULT.collections["documents"], query)
    assert list(found) == ["title", "text"]

    def marked(name: str) -> list[str]:
        return [found[name].text[start:end] for start, end in found[name].marks]

    assert marked("title") == ["Cats", "Cat", "Catalogues"]
    assert marked("text") == ["CAFÉS", "big", "cats"]
    piece = found["text"]
    assert piece.more
    assert 0.9 * LENGTH < len(piece.text) <= LENGTH
    assert abs(piece.marks[0][0] - (len(piece.text) - piece.marks[-1][1])) < 10, (
        "the matches are not in the middle of the snippet"
    )
