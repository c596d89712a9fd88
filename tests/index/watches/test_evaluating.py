"""What a query finds of one version: as a shard that has it alone, and as the sequential model."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from driftline.index.postings.tail import Tail
from driftline.index.query.bound import Bound
from driftline.index.search.shard import Shard
from driftline.index.watches.evaluating import Contents, matches
from tests.index.search.indexes import DOCUMENT, KINDS, QUERY, WEIGHTS, versions
from tests.index.search.model import Document, Write
from tests.index.search.model import matches as matches_in_model

LONGER = st.lists(st.sampled_from("abc"), max_size=12).map(tuple)


@given(queries=st.lists(QUERY, min_size=1, max_size=5), document=DOCUMENT, text=st.none() | LONGER)
def test_a_version_by_itself_matches_as_in_a_shard(
    queries: list[Bound], document: Document, text: tuple[str, ...] | None
) -> None:
    if text is not None:  # phrases that are there several times
        document = replace(document, texts=(text, document.texts[1]))
    shard = Shard(Tail(0, 2, KINDS), WEIGHTS)
    [(time, version)] = versions([Write(1, "p", document)])
    shard.apply(time, version)
    for query in queries:
        found = matches(query.root, Contents(version))
        assert found == (shard.count(query, time + 1) == 1), query
        assert found == matches_in_model(query.root, document), query
