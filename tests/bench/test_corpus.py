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


def test_documents_are_titles_and_texts_without_the_unreadable(articles: Path) -> None:
    assert load_documents(2, articles, PAGES) == [
        ("a", "Tides\nHigh and low."),
        ("b", "No title."),
    ]


def test_texts_come_again_with_fresh_ids_when_more_are_needed(articles: Path) -> None:
    documents = load_documents(5, articles, PAGES)
    assert [document for document, _ in documents] == ["a", "b", "a~2", "b~2", "a~3"]
    assert documents[4][1] == documents[0][1]


def test_fewer_documents_than_there_are(articles: Path) -> None:
    assert len(load_documents(1, articles, PAGES)) == 1
    assert load_documents(0, articles, PAGES) == []


def test_a_file_without_documents_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "empty.jsonl"
    path.write_text("")
    with pytest.raises(InputError, match=r"empty\.jsonl"):
        load_documents(1, path)


def test_the_sample_is_there_and_always_the_same() -> None:
    documents = load_documents(40)
    assert len({document for document, _ in documents}) == 40
    assert documents == load_documents(40)
    assert all(text.strip() for _, text in documents)
