"""Answers of searchers that are saved, merged and opened again at any moment, against the model."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.index.search.indexes import histories
from tests.index.search.model import Model
from tests.index.searcher.world import QUERIES, Replica, check, items_of

EVENTS = st.sampled_from(
    ("freeze", "freeze", "save fails", "saved", "saved", "merge", "merge", "merge fails", "reopen")
)


@settings(deadline=None)
@given(
    history=histories(),
    shards=st.integers(1, 2),
    happenings=st.lists(st.tuples(st.integers(1, 5), st.integers(0, 1), EVENTS), max_size=30),
    retained=st.integers(1, 60),
    queries=st.lists(QUERIES, min_size=1, max_size=3),
)
def test_answers_stay_those_of_the_model_whatever_happens(
    history: tuple[Model, int],
    shards: int,
    happenings: list[tuple[int, int, str]],
    retained: int,
    queries: list[str],
) -> None:
    model, end = history
    items = items_of(model.writes)
    with TemporaryDirectory() as directory:
        replicas = [Replica(Path(directory, str(i)), i, shards) for i in range(shards)]
        time = 0
        for step, number, what in happenings:
            time = min(time + step, end + 1)
            for replica in replicas:
                replica.follow(items, time)
            replicas[number % shards].happen(what, items)
            for replica in replicas:
                replica.searcher.retain(time - retained)
            searchers = [replica.searcher for replica in replicas]
            for at in {time, max(0, time - retained), max(0, time - retained // 2)}:
                check(searchers, model, queries, at)
