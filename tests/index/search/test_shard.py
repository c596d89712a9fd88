"""Answers of shards equal those of the sequential model to the last bit, as of each time and for
each division of the versions into shards and parts."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from driftline.index.query.tree import Query
from driftline.index.search.ranking import Sort, SortPosition, SortValue, merge_ranked
from tests.index.search.indexes import QUERY, WEIGHTS, ShardedIndex, histories, indexes
from tests.index.search.model import Model, ModelDocument, frequency, words_of

SORT = st.builds(Sort, st.integers(0, 2), st.booleans())


@given(
    history=histories(),
    queries=st.lists(QUERY, min_size=1, max_size=3),
    sort=SORT,
    sealed_at=st.lists(st.integers(1, 25), max_size=4),
    limit=st.integers(1, 5),
    data=st.data(),
)
def test_answers_equal_the_sequential_model(
    tmp_path: Path,
    history: tuple[Model, int],
    queries: list[Query],
    sort: Sort,
    sealed_at: list[int],
    limit: int,
    data: st.DataObject,
) -> None:
    model, time = history
    at = data.draw(st.integers(0, time + 1))
    for index in indexes(tmp_path, model, sealed_at):
        for query in queries:
            check_search(index, model, query, at, limit)
            assert pages(index, query, at, sort, limit) == in_order(model, query, at, sort), query
            check_facets(index, model, query, at)
        check_explanations(index, model, queries[0], at)
        found = {
            id: shard.stored(ordinal).decode()
            for shard in index.shards
            for id in "pqrstuvw"
            if (ordinal := shard.find(id, at)) is not None
        }
        assert found == {id: id for id in model.documents(at)}


def check_search(index: ShardedIndex, model: Model, query: Query, at: int, limit: int) -> None:
    """Check the first two pages by score, and the totals."""
    expected = model.search(query, at)
    total, hits = index.search(query, at, limit)
    assert total == len(expected), query
    assert hits == expected[:limit], query
    if hits:
        after = SortPosition(hits[-1][1], hits[-1][2])
        _, more = index.search(query, at, limit, after)
        assert more == expected[limit : 2 * limit], query


def value_of(document: ModelDocument, field: int) -> SortValue:
    return (
        (*document.keywords, None)[0] if field == 0 else (document.number, document.date)[field - 1]
    )


def in_order(model: Model, query: Query, time: int, sort: Sort) -> list[tuple[str, SortPosition]]:
    """Return all hits of the model, sorted."""
    found = [
        (id, SortPosition(0.0, written, value_of(document, sort.field)))
        for id, written, document in model.found(query, time)
    ]
    found.sort(key=lambda hit: hit[1].time)
    with_value = [hit for hit in found if hit[1].value is not None]
    with_value.sort(key=lambda hit: hit[1].value, reverse=sort.descending)  # type: ignore[arg-type, return-value]
    return with_value + [hit for hit in found if hit[1].value is None]


def pages(
    index: ShardedIndex, query: Query, time: int, sort: Sort, limit: int
) -> list[tuple[str, SortPosition]]:
    """Return all hits of the index, read page by page."""
    ids = {
        shard.time_of(ordinal): id
        for shard in index.shards
        for id in "pqrstuvw"
        if (ordinal := shard.find(id, time)) is not None
    }
    found: list[tuple[str, SortPosition]] = []
    after = None
    while True:
        answers = [shard.search(query, time, limit, after, sort=sort) for shard in index.shards]
        page = merge_ranked((answer.ranked for answer in answers), limit, sort)
        found += [(ids[each.sort_position.time], each.sort_position) for each in page]
        if len(page) < limit:
            return found
        after = page[-1].sort_position


def check_facets(index: ShardedIndex, model: Model, query: Query, at: int) -> None:
    found = [document for _, _, document in model.found(query, at)]
    answers = [shard.search(query, at, 3, facets=[0]) for shard in index.shards]
    assert sum(answer.total for answer in answers) == len(found)
    assert sum(shard.count(query, at) for shard in index.shards) == len(found)
    keywords = Counter(word for each in found for word in set(each.keywords))
    assert sum((answer.facets[0] for answer in answers), Counter()) == keywords


def check_explanations(index: ShardedIndex, model: Model, query: Query, at: int) -> None:
    """Check that shares equal those of the model and sum up to the score."""
    hits = {id: score for id, score, _ in model.search(query, at)}
    documents, everything = model.documents(at), model.everything(at)
    for id in "pqrstuvw":
        found = [shard.explain(query, id, at) for shard in index.shards]
        explained = [each for each in found if each is not None]
        assert len(explained) == (id in documents)
        for each in explained:
            assert each.matches == (id in hits)
            score = 0.0
            for share in each.shares:
                score += share.score
            assert score == each.score == hits.get(id, score)
            assert [share.leaf for share in each.shares] == list(map(str, query.scoring))
            for leaf, share in zip(query.scoring, each.shares, strict=True):
                document = documents[id][1]
                text = document.texts[leaf.field]
                texts = [other.texts[leaf.field] for other in everything]
                assert share.frequency == frequency(leaf, text)
                assert share.length == len(text)
                assert share.documents == sum(map(bool, texts))
                documents_with_word = (
                    sum(word in other for other in texts) for word in words_of(leaf)
                )
                assert share.document_frequencies == tuple(documents_with_word)
                assert share.average == sum(map(len, texts)) / max(share.documents, 1) or not text
                assert share.weight == WEIGHTS[leaf.field]
                assert share.score == model.score(leaf, document, everything)
