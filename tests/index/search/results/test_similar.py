"""More like this, against rating all words in the plainest way."""

from __future__ import annotations

from math import log1p

from hypothesis import given
from hypothesis import strategies as st

from driftline.index.documents.schema import DEFAULT
from driftline.index.documents.writes import version_of
from driftline.index.postings.tail import Tail
from driftline.index.query.bound import AnyOf, Bound, Word
from driftline.index.search.results.similar import WORDS_MAX, like
from driftline.index.search.shard import Shard

COLLECTION = DEFAULT.collections["documents"]
NAMES = ("title", "text")

WORDS = st.lists(st.sampled_from([f"{a}{b}" for a in "abcdefg" for b in "abcdefg"]), max_size=60)
DOCUMENTS = st.lists(st.tuples(WORDS, WORDS), min_size=1, max_size=8)


def shard_of(documents: list[tuple[list[str], list[str]]]) -> Shard:
    shard = Shard(Tail(0, 2, ()), [2.0, 1.0])
    for number, texts in enumerate(documents):
        shard.apply(number, version_of(COLLECTION, str(number), as_json(texts)))
    return shard


def as_json(texts: tuple[list[str], list[str]]) -> dict[str, object]:
    return dict(zip(NAMES, map(" ".join, texts), strict=True))


@given(DOCUMENTS, st.integers(1, 8))
def test_the_most_typical_words_are_looked_for(
    documents: list[tuple[list[str], list[str]]], time: int
) -> None:
    shard = shard_of(documents)
    before = documents[:time]
    rated = []
    for field in range(2):
        texts = [texts[field] for texts in before if texts[field]]
        for word in set(documents[0][field]):
            having = sum(word in text for text in texts)
            idf = log1p((len(texts) - having + 0.5) / (having + 0.5))
            if having > 1:
                rated.append((-documents[0][field].count(word) * idf, field, word))
    words = tuple(Word(field, NAMES[field], word) for _, field, word in sorted(rated)[:WORDS_MAX])
    found = like(as_json(documents[0]), COLLECTION, shard.statistics, time)
    if found is None:
        assert not words
    else:
        assert found == Bound(AnyOf(words) if len(words) > 1 else words[0], words)


def test_what_is_like_a_document_is_found_without_it() -> None:
    texts = ("red fox", "red fox den"), ("blue fox", "den"), ("grey", "whale")
    shard = shard_of([(title.split(), text.split()) for title, text in texts])
    query = like({"title": "red fox", "text": "red fox den"}, COLLECTION, shard.statistics, 3)
    assert str(query) == "title:fox OR text:den"
    assert query is not None
    shard.replace(shard.parts, Tail(3, 2, ()))
    shard.apply(3, version_of(COLLECTION, "3", {"title": "a fox", "text": ""}))
    assert [each.ordinal for each in shard.search(query, 4, 10).ranked] == [1, 0, 3]
    assert [each.ordinal for each in shard.search(query, 4, 10, without="2").ranked] == [1, 0, 3]
    assert [each.ordinal for each in shard.search(query, 4, 10, without="0").ranked] == [1, 3]
    assert [each.ordinal for each in shard.search(query, 4, 10, without="1").ranked] == [0, 3]
