"""Anchors: what a query matches is looked at; and what is packed of a query comes back."""

from __future__ import annotations

from functools import partial
from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from driftline.index.documents.schema import DEFAULT
from driftline.index.query.binding import bind
from driftline.index.query.bound import (
    AnyOf,
    AnyWord,
    Bound,
    BoundPhrase,
    Equals,
    KeywordsFrom,
    Near,
    Part,
    Word,
    WordsFrom,
)
from driftline.index.query.parsing import parse
from driftline.index.watches.anchors import LETTERS_MAX, Anchor, Anchors, Kind, cover
from driftline.index.watches.evaluating import Contents
from driftline.index.watches.evaluating import matches as matches_alone
from driftline.index.watches.packing import cover_in, packed, tree_in
from tests.index.search.indexes import DOCUMENT, QUERY, versions
from tests.index.search.model import Document, Write, matches


@given(
    queries=st.lists(QUERY, max_size=8),
    frequencies=st.lists(st.integers(0, 9), min_size=5, max_size=5),
    documents=st.lists(DOCUMENT, max_size=4),
    removed=st.sets(st.integers(0, 7)),
)
def test_all_that_match_are_found_and_for_certain_only_those(
    queries: list[Bound],
    frequencies: list[int],
    documents: list[Document],
    removed: set[int],
) -> None:
    anchors: Anchors[int] = Anchors()
    covers = [
        cover(query.root, lambda field, word: frequencies[(field + len(word)) % 5])
        for query in queries
    ]
    for number, found in enumerate(covers):
        anchors.add(found, number)
    for number, found in enumerate(covers):
        if number in removed:
            anchors.remove(found, number)
    writes = [Write(1, str(number), document) for number, document in enumerate(documents)]
    for document, (_, version) in zip(documents, versions(writes), strict=True):
        contents = Contents(version)
        certain, possible = anchors.find(contents.words, partial(Contents, version))
        assert not certain.keys() & possible.keys()
        for number, query in enumerate(queries):
            there = number not in removed
            if matches(query.root, document) and there:
                assert number in certain or number in possible, query
            else:
                assert number not in certain, query
            assert there or number not in possible
    if removed >= set(range(len(queries))):
        assert not anchors


def test_each_leaf_finds_what_it_matches_in_each_short_text() -> None:
    words = ("a", "ab", "abc", "b")
    texts = [text for length in range(4) for text in product(words, repeat=length)]
    phrases = [*product(words[:2], repeat=2), *product(words[:2], repeat=3)]
    leaves: list[Part] = [
        *(kind(0, "f", word) for kind in (Word, Near, WordsFrom) for word in words),
        *(BoundPhrase(0, "f", phrase, slop) for phrase in phrases for slop in range(2)),
        *(kind(0, "f", word) for kind in (Equals, KeywordsFrom) for word in words),
        *(AnyWord(0, "f"), KeywordsFrom(0, "f", "")),
        AnyOf((Word(0, "f", "b"), BoundPhrase(0, "f", ("a", "ab", "a"), 0))),
    ]
    anchors: Anchors[int] = Anchors()
    for number, leaf in enumerate(leaves):
        anchors.add(cover(leaf, lambda field, word: 0), number)
    for text in texts:
        document = Document((text, ()), text)
        [(_, version)] = versions([Write(1, "p", document)])
        contents = Contents(version)
        certain, possible = anchors.find(contents.words, partial(Contents, version))
        for number, leaf in enumerate(leaves):
            assert matches(leaf, document) or number not in certain, (leaf, text)
            assert not matches(leaf, document) or number in certain | possible, (leaf, text)
            assert matches_alone(leaf, contents) == matches(leaf, document), (leaf, text)


def test_the_rarest_part_is_the_anchor() -> None:
    often = {"the": 990, "cat": 50, "purrs": 770, "a": 20}

    def anchors(query: str) -> list[Anchor] | None:
        root = bind(parse(query), DEFAULT.collections["documents"]).root
        found = cover(root, lambda field, word: often.get(word, 0))
        return None if found is None else list(found.anchors)

    both = [Anchor(Kind.WORD, 0, "cat"), Anchor(Kind.WORD, 1, "cat")]
    assert anchors("the cat purrs") == both
    assert anchors('text:"the purrs cat"') == [Anchor(Kind.PAIR, 1, "purrs cat")]
    assert anchors('text:"the purrs cat"~1') == both[1:]
    assert anchors('text:(cat "purrs the")') == [Anchor(Kind.PAIR, 1, "purrs the")]
    assert anchors('text:(a "purrs the")') == [Anchor(Kind.WORD, 1, "a")]
    assert anchors("the (cat OR text:a) -dog") == [*both, Anchor(Kind.WORD, 1, "a")]
    assert anchors("the c* ca~") == [Anchor(Kind.WORD, 0, "the"), Anchor(Kind.WORD, 1, "the")]
    assert anchors("text:unknown text:words") == [Anchor(Kind.WORD, 1, "unknown")]
    assert anchors("cat OR -the") is None
    assert anchors("*") is None
    assert anchors(f"{'x' * (LETTERS_MAX + 1)}~") is None


@given(QUERY)
def test_what_is_packed_of_a_query_comes_back(query: Bound) -> None:
    found = cover(query.root, lambda field, word: 0)
    data = packed(found, query.root)
    assert cover_in(data) == found
    assert str(tree_in(data)) == str(query.root).replace("f:", ":")
