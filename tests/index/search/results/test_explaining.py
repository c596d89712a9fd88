"""Explanations against the sequential model, and against the scores of a search."""

from __future__ import annotations

from pathlib import Path
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from driftline.index.documents.versions import Version
from driftline.index.documents.versions import words_of as fields_of
from driftline.index.postings.tail import Tail
from driftline.index.query.bound import AnyOf, Bound, Word
from driftline.index.search.shard import Shard
from tests.index.search.indexes import QUERY, WEIGHTS, histories, indexes
from tests.index.search.model import Model, frequency, words_of


@given(histories(), QUERY, st.lists(st.integers(1, 25), max_size=4), st.data())
def test_shares_add_up_to_the_score(
    tmp_path: Path,
    history: tuple[Model, int],
    query: Bound,
    sealed_at: list[int],
    data: st.DataObject,
) -> None:
    model, time = history
    at = data.draw(st.integers(0, time + 1))
    hits = {id: score for id, score, _ in model.search(query, at)}
    documents = model.documents(at)
    for index in indexes(tmp_path, model, sealed_at):
        for id in "pqrstuvw":
            explained = [
                each for shard in index.shards if (each := shard.explain(query, id, at)) is not None
            ]
            assert len(explained) == (id in documents)
            if not explained:
                continue
            assert explained[0].matches == (id in hits)
            score = 0.0
            for share in explained[0].shares:
                score += share.score
            assert score == explained[0].score == hits.get(id, score)
            assert [share.leaf for share in explained[0].shares] == list(query.scoring)
            for share in explained[0].shares:
                leaf, document = share.leaf, documents[id][1]
                text = document.texts[leaf.field]
                texts = [each.texts[leaf.field] for each in model.everything(at)]
                assert share.frequency == frequency(leaf, text)
                assert share.length == len(text)
                assert share.documents == sum(map(bool, texts))
                assert share.having == tuple(
                    sum(word in each for each in texts) for word in words_of(leaf)
                )
                assert share.average == sum(map(len, texts)) / max(share.documents, 1) or not text
                assert share.weight == WEIGHTS[leaf.field]
                assert share.score == model.score(leaf, document, model.everything(at))


def test_many_shares_add_up_in_their_order() -> None:
    random = Random(7)
    shard = Shard(Tail(0, 1, ()), [1.3])
    for number in range(200):
        words = fields_of(random.choices("abcdefgh", range(1, 9), k=random.randint(5, 30)))
        shard.apply(number, Version("c", str(number), (words,), (), b""))
    leaves = tuple(Word(0, "f", word) for word in "hagbfce")
    query = Bound(AnyOf(leaves), leaves)
    for ranked in shard.search(query, 200, 200).ranked:
        explanation = shard.explain(query, str(ranked.ordinal), 200)
        assert explanation is not None
        assert explanation.score == ranked.place.score
        score = 0.0
        for share in explanation.shares:
            score += share.score
        assert score == ranked.place.score
