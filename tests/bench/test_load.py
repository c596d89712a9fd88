"""The load is the same for every system, and what is measured counts from the due times."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from driftline.bench.measuring.corpus import load_documents
from driftline.bench.measuring.load import (
    KINDS,
    DrawnQuery,
    Load,
    LoadParameters,
    Measurements,
    Queries,
    unique_word,
)

WANTED = LoadParameters(documents=60, rate=50, searches=80, seconds=2.0, seed=3)


def test_load_is_deterministic_and_has_the_requested_rates() -> None:
    documents = load_documents(WANTED.documents_needed)
    load = WANTED.load(documents)
    assert load == WANTED.load(documents)
    assert list(load.documents) == list(documents[:60])
    assert [each.id for each in load.document_arrivals] == [id for id, _ in documents[60:]]
    seconds = WANTED.warmup_s + WANTED.seconds
    for due, rate in (
        ([each.due_s for each in load.document_arrivals], WANTED.rate),
        ([each.due_s for each in load.query_arrivals], WANTED.searches),
    ):
        assert due == sorted(due)
        assert 0.6 < len(due) / (rate * seconds) < 1.4
        assert seconds * 0.8 < due[-1] < seconds


def test_load_round_trips_through_a_directory(tmp_path: Path) -> None:
    load = WANTED.load(load_documents(WANTED.documents_needed))
    load.write(tmp_path / "load")
    assert Load.read(tmp_path / "load") == load


def test_each_arriving_document_has_a_unique_word() -> None:
    load = WANTED.load(load_documents(WANTED.documents_needed))
    texts = [text for _, text in load.documents] + [each.text for each in load.document_arrivals]
    for each in load.document_arrivals:
        assert sum(each.word in text for text in texts) == 1
    assert len({unique_word(number) for number in range(30_000)}) == 30_000


def test_words_of_queries_are_drawn_by_zipf() -> None:
    queries = Queries(load_documents(300), seed=1)
    drawn = Counter(queries.draw_of_kind("term").words[0] for _ in range(20_000))
    first, tenth = (drawn[queries.ranked[rank - 1]] for rank in (1, 10))
    assert 6 < first / tenth < 16
    assert len(drawn) > 1000, "and rare ones come, too"


def test_every_query_kind_is_drawn_with_its_number_of_words() -> None:
    documents = load_documents(100)
    queries = Queries(documents, seed=2)
    lengths = {"term": 1, "union2": 2, "union5": 5, "intersection": 2, "phrase": 2}
    drawn = [queries.draw() for _ in range(500)]
    assert {query.kind for query in drawn} == set(KINDS)
    for query in drawn:
        assert len(query.words) == lengths[query.kind]
        if query.kind != "phrase":
            assert len(set(query.words)) == len(query.words)


def test_observations_round_trip_through_json() -> None:
    observed = Measurements(fill_per_s=2.5, queries={DrawnQuery("term", ["a"]).kind: [1.0, 2.0]})
    observed.errors["not found"] += 2
    assert Measurements.of_json(observed.as_json()) == observed
