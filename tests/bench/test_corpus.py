"""The corpus: as many documents as asked for, in one order, each with an id of its own."""

import json
from pathlib import Path

import pytest

from driftline.bench.measuring.corpus import load_documents
from driftline.engine.errors import InputError
from driftline.engine.sources.record import Shape

PAGES = Shape()


@pytest.fixture
def articles(tmp_path: Path) -> Path:
    path = tmp_path / "articles.jsonl"
    lines = [
        json.dumps({"id": "a", "title": "Tides", "text": "High and low."}),
        "{ broken",
        json.dumps({"id": "b", "title": "", "text": "No title."}),
    ]
    path.write_text("\n".join(lines))
    return path


def test_documents_join_title_and_text_and_skip_bad_lines(articles: Path) -> None:
    assert load_documents(2, articles, PAGES) == [
        ("a", "Tides\nHigh and low."),
        ("b", "No title."),
    ]


def test_texts_repeat_with_new_ids_if_the_corpus_is_too_small(articles: Path) -> None:
    documents = load_documents(5, articles, PAGES)
    assert [document for document, _ in documents] == ["a", "b", "a~2", "b~2", "a~3"]
    assert documents[4][1] == documents[0][1]


def test_load_stops_at_the_requested_number_of_documents(articles: Path) -> None:
    assert len(load_documents(1, articles, PAGES)) == 1
    assert load_documents(0, articles, PAGES) == []


def test_a_file_without_documents_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "empty.jsonl"
    path.write_text("")
    with pytest.raises(InputError, match=r"empty\.jsonl"):
        load_documents(1, path)


def test_sample_corpus_is_deterministic() -> None:
    documents = load_documents(40)
    assert len({document for document, _ in documents}) == 40
    assert documents == load_documents(40)
    assert all(text.strip() for _, text in documents)
