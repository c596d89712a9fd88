"""Answers of shards, to the last bit, against the sequential model: as of each time, however the
versions are divided into shards and parts."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from driftline.index.query.tree import Query
from driftline.index.search.ranking import SortPosition
from tests.index.search.indexes import QUERY, histories, indexes
from tests.index.search.model import Model


@given(
    history=histories(),
    queries=st.lists(QUERY, min_size=1, max_size=4),
    sealed_at=st.lists(st.integers(1, 25), max_size=4),
    limit=st.integers(1, 5),
    data=st.data(),
)
def test_every_answer_is_that_of_the_sequential_model(
    tmp_path: Path,
    history: tuple[Model, int],
    queries: list[Query],
    sealed_at: list[int],
    limit: int,
    data: st.DataObject,
) -> None:
    model, time = history
    at = data.draw(st.integers(0, time + 1))
    both = indexes(tmp_path, model, sealed_at)
    for query in queries:
        expected = model.search(query, at)
        for index in both:
            total, hits = index.search(query, at, limit)
            assert total == len(expected), query
            assert hits == expected[:limit], query
            if hits:
                after = SortPosition(hits[-1][1], hits[-1][2])
                _, more = index.search(query, at, limit, after)
                assert more == expected[limit : 2 * limit], query
    for index in both:
        found = {
            id: shard.stored(ordinal).decode()
            for shard in index.shards
            for id in "pqrstuvw"
            if (ordinal := shard.find(id, at)) is not None
        }
        assert found == {id: id for id in model.documents(at)}
