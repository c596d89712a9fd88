"""Requests to a searcher: formats of questions and answers, and rejected requests."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from driftline import run_reference
from driftline.engine.errors import MalformedMessage
from driftline.engine.wire.codec import pack, unpack
from driftline.index.documents.schema import Schema, load_schema
from driftline.index.documents.writes import Write, document_flow
from driftline.index.searcher import answers
from driftline.index.searcher.searcher import Searcher
from driftline.serve.errors import ApiError
from driftline.serve.views.hosted import Question

TOML = """
[collections.books]
others = "stored"
[collections.books.fields]
title = {kind = "text", weight = 2.0}
text = {kind = "text"}
tags = {kind = "keyword"}
pages = {kind = "number"}
printed = {kind = "date"}
[collections.notes.fields]
text = {kind = "text"}
"""

BOOKS: dict[str, dict[str, object]] = {
    "tea": {"title": "Tea", "text": "a cup of tea", "tags": ["drink"], "pages": 12},
    "oil": {"title": "Oil", "text": "oil, for tea and cars", "tags": ["fuel", "drink"]},
    "sea": {"title": "Sea", "text": "sea of tea", "pages": 7, "printed": "1970-01-02", "more": 1},
}
"""Written at the times 1, 2 and 3; the first one is replaced at 4 and deleted at 5."""

WRITES = [
    *(Write("books", id, document) for id, document in BOOKS.items()),
    Write("books", "tea", {"title": "No tea"}, 1),
    Write("books", "tea", None),
]


@pytest.fixture
def schema(tmp_path: Path) -> Schema:
    (tmp_path / "schema.toml").write_text(TOML)
    return load_schema(tmp_path / "schema.toml")


@pytest.fixture
def searcher(tmp_path: Path, schema: Schema) -> Searcher:
    return searcher_of(schema, tmp_path)


def searcher_of(schema: Schema, directory: Path, shard: int = 0, shards: int = 1) -> Searcher:
    items = [*run_reference(document_flow(schema), [[write.record() for write in WRITES]])]
    searcher = Searcher(schema, directory / f"{shard} of {shards}", shard, shards)
    searcher.apply(len(WRITES) + 1, items)
    return searcher


def ask(searcher: Searcher, what: str, **others: object) -> dict[str, object]:
    """Return the answer as another process receives it; by default from `books` as of 4."""
    question = {"what": what, "collection": "books", "at": 4, **others}
    asked = unpack(pack(question))
    assert isinstance(asked, dict)
    answer = unpack(pack(searcher.ask(asked)))
    assert isinstance(answer, dict)
    return answer


def ids(answer: dict[str, object]) -> list[str]:
    hits = answer["hits"]
    assert isinstance(hits, tuple)
    return [hit["id"] for hit in hits]


def test_search_returns_hits_scores_and_facets(searcher: Searcher) -> None:
    answer = ask(searcher, "search", q="title:tea", limit=5, snippets=True)
    assert ask(searcher, "explain", q="title:tea", id="tea")["score"] == pytest.approx(1.96, 0.01)
    score = ask(searcher, "explain", q="title:tea", id="tea")["score"]
    assert answer == {
        "total": 1,
        "hits": (
            {
                "id": "tea",
                "score": score,
                "time": 1,
                "value": None,
                "stored": json.dumps(BOOKS["tea"], sort_keys=True, separators=(",", ":")).encode(),
                "snippets": {
                    "title": {"text": "Tea", "start": 0, "more": False, "marks": ((0, 3),)},
                    "text": {"text": "a cup of tea", "start": 0, "more": False, "marks": ()},
                },
            },
        ),
        "facets": {},
    }
    found = ask(searcher, "search", q="tea -oil", limit=5, facets=["tags"])
    assert (ids(found), found["total"]) == (["tea", "sea"], 2)
    assert found["facets"] == {"tags": {"drink": 1}}
    everything = ask(searcher, "search", q="", limit=0, facets=["tags"])
    assert (everything["total"], everything["hits"]) == (3, ())
    assert everything["facets"] == {"tags": {"drink": 2, "fuel": 1}}


def test_only_retained_times_are_answered(searcher: Searcher) -> None:
    searcher.forget_before(3)
    searcher.forget_before(2)
    assert searcher.since == 3
    assert ask(searcher, "count", q="tea", at=3)["total"] == 2
    with pytest.raises(ApiError, match="no longer has states before record 3") as refused:
        ask(searcher, "count", q="tea", at=2)
    assert (refused.value.code, refused.value.details) == ("retained", {"oldest": 3})
    with pytest.raises(ApiError, match="has writes up to record 6 only") as refused:
        ask(searcher, "count", q="tea", at=7)
    assert refused.value.code == "unavailable"


SEARCH = {"what": "search", "q": "tea", "limit": 3}


REFUSED: list[tuple[str, str, Question]] = [
    ("invalid", "missing required field `what`", {}),
    ("invalid", "not a question to an index: Invalid value 'find'", {"what": "find"}),
    ("absent", "no collection 'films'; there are books, notes", {**SEARCH, "collection": "films"}),
    ("invalid", r"`\$.at`", {**SEARCH, "at": "3"}),
    ("invalid", "Expected `int` <= 1000", {**SEARCH, "limit": 1001}),
    (
        "invalid",
        r"no field 'page' to sort by \(did you mean 'pages'\?\); .* are pages, printed, tags",
        {**SEARCH, "sort": {"field": "page", "descending": True}},
    ),
    (
        "invalid",
        "no field 'pages' with keywords to count .* are tags",
        {**SEARCH, "facets": ["pages"]},
    ),
    ("invalid", "length <= 16", {**SEARCH, "facets": ["tags"] * 17}),
    ("invalid", r"`\$.start_after\[1\]`", {**SEARCH, "start_after": (0.5, 2**63, None)}),
    ("invalid", "start_after is not the score", {**SEARCH, "start_after": (0.5, 3, "a")}),
    ("query", "there is no field 'titel'.*", {**SEARCH, "q": "cat titel:dog"}),
    ("absent", "no document 'x'", {"what": "explain", "q": "tea", "id": "x"}),
]


def test_invalid_requests_are_rejected(searcher: Searcher) -> None:
    for code, text, question in REFUSED:
        with pytest.raises(ApiError, match=text) as refused:
            searcher.ask(unpack(pack({"collection": "books", **question})))  # type: ignore[arg-type]
        assert refused.value.code == code
        pack(refused.value.details)


def test_too_costly_query_is_rejected(tmp_path: Path, schema: Schema) -> None:
    searcher = searcher_of(schema, tmp_path)
    small = Searcher(schema, tmp_path / "small", budget=2)
    small.load(save_checkpoint(searcher, tmp_path / "0 of 1", tmp_path / "small"))
    with pytest.raises(ApiError, match="the query would read 3 postings") as refused:
        ask(small, "count", q="text:tea")
    assert (refused.value.code, refused.value.details) == ("costly", {"leaf": "text:tea"})
    assert ask(small, "count", q="text:cup")["total"] == 1


def test_an_answer_has_bounded_documents_and_snippets(
    searcher: Searcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    tea, oil, sea = (len(json.dumps(each, separators=(",", ":"))) for each in BOOKS.values())
    question = {"q": "*", "limit": 3, "snippets": True}
    monkeypatch.setattr(answers, "SNIPPET_BYTES_MAX", tea + 1)
    hits = ask(searcher, "search", **question)["hits"]
    assert isinstance(hits, tuple)
    assert [bool(hit["snippets"]) for hit in hits] == [True, True, False]
    monkeypatch.setattr(answers, "BYTES_MAX", tea + oil + sea)
    assert ids(ask(searcher, "search", **question)) == ["tea", "oil", "sea"]
    monkeypatch.setattr(answers, "BYTES_MAX", tea + oil + sea - 1)
    with pytest.raises(
        ApiError, match=r"the first 3 hits have more than .*: use a smaller limit"
    ) as refused:
        ask(searcher, "search", **question)
    assert (refused.value.code, refused.value.details) == ("costly", {"limit": 2})


def test_facet_has_bounded_keywords(searcher: Searcher, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "KEYWORDS_MAX", 1)
    assert ask(searcher, "search", q="cup", limit=1, facets=["tags"])["total"] == 1
    with pytest.raises(ApiError, match="the field 'tags' has 2 different keywords") as refused:
        ask(searcher, "search", q="tea", limit=1, facets=["tags"])
    assert refused.value.code == "costly"


def save_checkpoint(searcher: Searcher, directory: Path, other: Path) -> list[bytes]:
    """Save a checkpoint and copy its files to another directory."""
    searcher.freeze()
    parts = list(searcher.save())
    for path in directory.iterdir():
        (other / path.name).write_bytes(path.read_bytes())
    return parts


def test_versions_of_a_removed_collection_are_skipped(tmp_path: Path, schema: Schema) -> None:
    items = [*run_reference(document_flow(schema), [[write.record() for write in WRITES]])]
    rest = Schema({"notes": schema.collections["notes"]})
    searcher = Searcher(rest, tmp_path / "rest")
    searcher.apply(len(WRITES) + 1, items)
    assert searcher.figures()["versions"] == 0
    others = Schema({"books": schema.collections["notes"]})
    with pytest.raises(
        MalformedMessage,
        match="not have the fields of the collection 'notes'",
    ):
        Searcher(others, tmp_path / "others").apply(len(WRITES) + 1, items)
