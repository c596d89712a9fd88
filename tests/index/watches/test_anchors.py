"""Watches: what a query matches is looked at, matches alone as in a shard, and costs little."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driftline.index.documents.schema import DEFAULT
from driftline.index.postings.tail import Tail
from driftline.index.query.parsing import parse
from driftline.index.query.tree import (
    And,
    Exists,
    Fuzzy,
    Keyword,
    KeywordPrefix,
    Node,
    Not,
    Or,
    Phrase,
    Prefix,
    Query,
    Term,
)
from driftline.index.search.shard import Shard
from driftline.index.watches.anchors import LETTERS_MAX, Anchor, Anchors, Kind, cover
from driftline.index.watches.costs import SLOPPY, WORDS_MAX, WatchTooCostly, check
from driftline.index.watches.evaluating import Contents
from driftline.index.watches.evaluating import matches as matches_alone
from tests.index.search.indexes import DOCUMENT, KINDS, QUERY, WEIGHTS, versions
from tests.index.search.model import Document, Write, matches


@given(
    queries=st.lists(QUERY, max_size=8),
    frequencies=st.lists(st.integers(0, 9), min_size=5, max_size=5),
    documents=st.lists(DOCUMENT, max_size=4),
    removed=st.sets(st.integers(0, 7)),
)
def test_all_that_match_are_found_and_for_certain_only_those(
    queries: list[Query],
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
    leaves: list[Node] = [
        *(kind(0, "f", word) for kind in (Term, Fuzzy, Prefix) for word in words),
        *(Phrase(0, "f", phrase, slop) for phrase in phrases for slop in range(2)),
        *(kind(0, "f", word) for kind in (Keyword, KeywordPrefix) for word in words),
        *(Exists(0, "f"), KeywordPrefix(0, "f", "")),
        Or((Term(0, "f", "b"), Phrase(0, "f", ("a", "ab", "a"), 0))),
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
        root = parse(query, DEFAULT.collections["documents"]).root
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


LONGER = st.lists(st.sampled_from("abc"), max_size=12).map(tuple)


@given(queries=st.lists(QUERY, min_size=1, max_size=5), document=DOCUMENT, text=st.none() | LONGER)
def test_a_version_by_itself_matches_as_in_a_shard(
    queries: list[Query], document: Document, text: tuple[str, ...] | None
) -> None:
    if text is not None:  # phrases that are there several times
        document = replace(document, texts=(text, document.texts[1]))
    shard = Shard(Tail(0, 2, KINDS), WEIGHTS)
    [(time, version)] = versions([Write(1, "p", document)])
    shard.apply(time, version)
    for query in queries:
        found = matches_alone(query.root, Contents(version))
        assert found == (shard.count(query, time + 1) == 1), query
        assert found == matches(query.root, document), query


MOST = WORDS_MAX // SLOPPY


def phrase(words: int, slop: int, field: int = 0) -> Phrase:
    return Phrase(field, f"f{field}", ("tea",) * words, slop)


@pytest.mark.parametrize(
    "query",
    [
        Term(0, "f0", "tea"),
        phrase(WORDS_MAX, 0),
        phrase(MOST, 100),
        And((phrase(MOST - 2, 1), Not(phrase(2, 2)))),
        Or((phrase(MOST, 1, 0), phrase(MOST, 1, 1), phrase(WORDS_MAX, 0, 2))),
    ],
)
def test_a_watch_can_have_some_phrases_in_each_field(query: Node) -> None:
    check(query)


@pytest.mark.parametrize(
    ("query", "leaf"),
    [
        (phrase(WORDS_MAX + 1, 0), phrase(WORDS_MAX + 1, 0)),
        (phrase(MOST + 1, 1), phrase(MOST + 1, 1)),
        (Not(Or((phrase(2, 2), phrase(MOST - 1, 1)))), phrase(MOST - 1, 1)),
        (And((phrase(MOST, 1, 1), phrase(2, 0, 1), phrase(MOST, 1))), phrase(MOST, 1, 1)),
        (Or(tuple(phrase(20, slop) for slop in range(60, 100))), phrase(20, 60)),
    ],
)
def test_a_watch_that_could_take_long_is_refused(query: Node, leaf: Node) -> None:
    with pytest.raises(WatchTooCostly, match="leave") as refused:
        check(query)
    assert refused.value.leaf == str(leaf)
