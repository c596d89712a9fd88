"""A version matches by itself as in a shard, and no query matches without one of its anchors."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from driftline.index.documents.schema import DEFAULT
from driftline.index.postings.memory_segment import MemorySegment
from driftline.index.query.parsing import parse
from driftline.index.query.tree import (
    Keyword,
    Query,
)
from driftline.index.search.shard import Shard
from driftline.index.search.version_matching import Anchor, VersionContents, anchors_of
from driftline.index.search.version_matching import matches as matches_alone
from tests.index.search.indexes import DOCUMENT, KINDS, QUERY, WEIGHTS, versions
from tests.index.search.model import Document, Write, matches


@given(QUERY, st.lists(st.integers(0, 9), min_size=5, max_size=5), DOCUMENT)
def test_matching_document_contains_an_anchor(
    query: Query, frequencies: list[int], document: Document
) -> None:
    anchors = anchors_of(query.root, lambda field, word: frequencies[(field + len(word)) % 5])
    if anchors is not None and matches(query.root, document):
        assert any(
            each.text in (document.keywords if each.is_keyword else document.texts[each.field])
            for each in anchors
        )


def test_the_rarest_part_is_the_anchor() -> None:
    often = {"the": 990, "cat": 50, "purrs": 770, "a": 20}

    def anchors(query: str) -> list[str] | None:
        root = parse(query, DEFAULT.collections["documents"]).root
        found = anchors_of(root, lambda field, word: often.get(word, 0))
        return None if found is None else [f"{each.field}:{each.text}" for each in found]

    assert anchors("the cat purrs") == ["0:cat", "1:cat"]
    assert anchors('text:"the purrs cat"') == ["0:cat"]
    assert anchors("the (cat OR text:a) -dog") == ["0:cat", "1:cat", "0:a"]
    assert anchors("the c* ca~") == ["0:the", "1:the"]
    for query in ("cat OR -the", "*", "c*", "cat~"):
        assert anchors(query) is None
    assert anchors_of(Keyword(0, "f", "x"), lambda *_: 0) == (Anchor(True, 0, "x"),)


LONGER = st.lists(st.sampled_from("abc"), max_size=12).map(tuple)


@given(queries=st.lists(QUERY, min_size=1, max_size=5), document=DOCUMENT, text=st.none() | LONGER)
def test_a_version_by_itself_matches_as_in_a_shard(
    queries: list[Query], document: Document, text: tuple[str, ...] | None
) -> None:
    if text is not None:  # phrases that are there several times
        document = replace(document, texts=(text, document.texts[1]))
    shard = Shard(MemorySegment(0, 2, KINDS), WEIGHTS)
    [(time, version)] = versions([Write(1, "p", document)])
    shard.apply(time, version)
    for query in queries:
        found = matches_alone(query.root, VersionContents.of(version))
        assert found == (shard.count(query, time + 1) == 1), query
        assert found == matches(query.root, document), query
