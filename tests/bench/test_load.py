"""The load is the same for every system, and what is measured counts from the due times."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from driftline.bench.measuring.corpus import load_documents
from driftline.bench.measuring.load import (
    KINDS,
    DrawnQuery,
    Load,
    Observed,
    Queries,
    Wanted,
    unique_word,
)

WANTED = Wanted(documents=60, rate=50, searches=80, seconds=2.0, seed=3)


def test_a_load_is_what_is_wanted_and_the_same_again() -> None:
    documents = load_documents(WANTED.needed)
    load = WANTED.load(documents)
    assert load == WANTED.load(documents)
    assert list(load.documents) == list(documents[:60])
    assert [each.id for each in load.arriving] == [id for id, _ in documents[60:]]
    seconds = WANTED.warmup_s + WANTED.seconds
    for due, rate in (
        ([each.due_s for each in load.arriving], WANTED.rate),
        ([each.due_s for each in load.asked], WANTED.searches),
    ):
        assert due == sorted(due)
        assert 0.6 < len(due) / (rate * seconds) < 1.4
        assert seconds * 0.8 < due[-1] < seconds


def test_a_load_comes_to_another_process_as_it_is(tmp_path: Path) -> None:
    load = WANTED.load(load_documents(WANTED.needed))
    load.write(tmp_path / "load")
    assert Load.read(tmp_path / "load") == load


def test_each_document_that_arrives_has_a_word_of_its_own() -> None:
    load = WANTED.load(load_documents(WANTED.needed))
    texts = [text for _, text in load.documents] + [each.text for each in load.arriving]
    for each in load.arriving:
        assert sum(each.word in text for text in texts) == 1
    assert len({unique_word(number) for number in range(30_000)}) == 30_000


def test_words_of_queries_are_drawn_by_zipf() -> None:
    queries = Queries(load_documents(300), seed=1)
    drawn = Counter(queries.of("term").words[0] for _ in range(20_000))
    first, tenth = (drawn[queries.ranked[rank - 1]] for rank in (1, 10))
    assert 6 < first / tenth < 16
    assert len(drawn) > 1000, "and rare ones come, too"


def test_queries_have_their_forms_and_phrases_are_somewhere() -> None:
    documents = load_documents(100)
    queries = Queries(documents, seed=2)
    lengths = {"term": 1, "union2": 2, "union5": 5, "intersection": 2, "phrase": 2}
    drawn = [queries.draw() for _ in range(500)]
    assert {query.kind for query in drawn} == set(KINDS)
    for query in drawn:
        assert len(query.words) == lengths[query.kind]
        if query.kind != "phrase":
            assert len(set(query.words)) == len(query.words)


def test_what_was_observed_comes_from_another_process_as_it_is() -> None:
    observed = Observed(fill_per_s=2.5, queries={DrawnQuery("term", ["a"]).kind: [1.0, 2.0]})
    observed.errors["not found"] += 2
    assert Observed.of_json(observed.as_json()) == observed
