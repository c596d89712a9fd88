"""Searches over HTTP: merged answers of several shards, and pages without gaps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from driftline.index.documents.schema import Schema, load_schema
from driftline.index.http.reading import snippet_html
from driftline.index.search.results import Snippet
from driftline.serve.http.operations import HttpSettings
from tests.index.http.service import IndexBackend, client_of

SCHEMA = """
[collections.teas]
others = "stored"
[collections.teas.fields]
title = {kind = "text"}
text = {kind = "text"}
tags = {kind = "keyword"}
year = {kind = "number"}
picked = {kind = "date"}
[collections.empty.fields]
title = {kind = "text"}
"""


def schema_of(directory: Path) -> Schema:
    path = directory / "schema.toml"
    path.write_text(SCHEMA)
    return load_schema(path)


def tea_document(number: int) -> dict[str, object]:
    return {
        "title": f"Tea number{number}",
        "text": "tea " * (number % 5) + "leaves <b> & water",
        "tags": ["green", "cheap"] if number % 3 else "black",
        "year": 1990 + number % 4,
        **({"picked": f"2020-01-{number % 9 + 1:02}"} if number % 2 else {}),
    }


async def put_teas(client: httpx.AsyncClient, count: int = 40) -> None:
    lines = [json.dumps({"id": f"t{n}", **tea_document(n)}) for n in range(count)]
    await client.post("/collections/teas/documents:bulk", content="\n".join(lines).encode())


async def pages(client: httpx.AsyncClient, **query: Any) -> tuple[list[dict[str, Any]], list[str]]:
    """Return all hits of a query, read page by page, and the tokens of the pages."""
    hits: list[dict[str, Any]] = []
    tokens = []
    while True:
        answer = await client.get("/collections/teas/search", params=query)
        assert answer.status_code == 200, answer.text
        found = answer.json()
        hits += found["hits"]
        tokens.append(found["at"])
        if found["cursor"] is None:
            assert len(hits) == found["total"]
            return hits, tokens
        query["cursor"] = found["cursor"]
        # A write between two pages must not change the next page.
        changed = {"title": "tea tea tea", "tags": ["green"]}
        await client.put(f"/collections/teas/documents/t{len(hits)}", json=changed)


async def test_read_without_after_does_not_wait_for_a_lagging_view(
    tmp_path: Path,
) -> None:
    """The view is behind the journal, as during a bulk."""
    service = IndexBackend(tmp_path, schema_of(tmp_path))
    async with client_of(service, HttpSettings(timeout_s=0.05)) as client:
        await client.put("/collections/teas/documents/1", json={"title": "tea"})
        seen = (await client.get("/collections/teas/count?q=tea")).json()
        service.views_lag = True
        label = (await client.put("/collections/teas/documents/2", json={"title": "tea"})).json()
        for path in ("search?q=tea", "count?q=tea", "documents/1", "watches"):
            answer = await client.get(f"/collections/teas/{path}")
            assert answer.status_code == 200, (path, answer.text)
            assert answer.json().get("at", seen["at"]) == seen["at"]
        assert (await client.get("/readyz")).status_code == 200
        after = {"q": "tea", "after": label["label"]}
        assert (await client.get("/collections/teas/count", params=after)).status_code == 503
        await service.apply(service.time)
        assert (await client.get("/collections/teas/count", params=after)).json()["total"] == 2


@pytest.mark.parametrize("sort", [None, "year", "-tags", "picked"])
async def test_pages_are_those_of_one_shard_as_of_one_time(
    tmp_path: Path, sort: str | None
) -> None:
    query = {"q": "tea OR leaves", "snippets": 0, **({"sort": sort} if sort else {})}
    schema = schema_of(tmp_path)
    several, one = (IndexBackend(tmp_path / str(n), schema, n) for n in (3, 1))
    async with client_of(one) as client:
        await put_teas(client)
        expected, _ = await pages(client, limit=1000, **query)
    async with client_of(several) as client:
        await put_teas(client)
        hits, tokens = await pages(client, limit=7, **query)
    assert hits == expected
    assert len(hits) == 40
    assert len(tokens) == 6
    assert len(set(tokens)) == 1


async def test_counts_facets_fields_and_snippets(tmp_path: Path) -> None:
    service = IndexBackend(tmp_path, schema_of(tmp_path), 3)
    async with client_of(service) as client:
        await put_teas(client, 12)
        query = {"q": "number7 water", "facet": "tags", "field": ["year", "none"]}
        found = (await client.get("/collections/teas/search", params=query)).json()
        assert found["total"] == 1
        assert found["facets"] == {
            "tags": [{"value": "cheap", "count": 1}, {"value": "green", "count": 1}]
        }
        (hit,) = found["hits"]
        assert hit["id"] == "t7"
        assert hit["fields"] == {"year": 1993}
        assert hit["snippet"] == "tea tea leaves &lt;b&gt; &amp; <mark>water</mark>"
        many = (
            await client.get("/collections/teas/search", params={"q": "*", "facet": "tags"})
        ).json()
        assert many["facets"]["tags"] == [
            {"value": "cheap", "count": 8},
            {"value": "green", "count": 8},
            {"value": "black", "count": 4},
        ]
        unknown = {"q": "*", "field": "titel"}
        assert (await client.get("/collections/teas/search", params=unknown)).json()["total"]
        refused = await client.get("/collections/empty/search", params=unknown)
        assert refused.status_code == 400
        assert "has no field 'titel' (did you mean 'title'?)" in refused.text
        count = await client.get("/collections/teas/count", params={"q": "tags:black"})
        assert count.json()["total"] == 4


async def test_cursor_of_another_query_is_rejected(tmp_path: Path) -> None:
    service = IndexBackend(tmp_path, schema_of(tmp_path))
    async with client_of(service) as client:
        await put_teas(client, 12)
        path = "/collections/teas/search"
        query = {"q": "tea", "limit": "2"}
        cursor = (await client.get(path, params=query)).json()["cursor"]
        damaged = "AB"[cursor[8] == "A"].join((cursor[:8], cursor[9:]))
        for where, more in (
            (path, {"cursor": damaged}),
            (path, {"cursor": cursor[:-1]}),
            (path, {"cursor": cursor, "q": "leaves"}),
            (path, {"cursor": cursor, "sort": "year"}),
            (path, {"cursor": cursor, "at": "00000000000000"}),
            ("/collections/empty/search", {"cursor": cursor}),
        ):
            answer = await client.get(where, params=query | more)
            assert answer.status_code == 400
        good = await client.get("/collections/teas/search", params=query | {"cursor": cursor})
        assert good.status_code == 200
        assert (await client.get("/search", params={"q": "a"})).status_code == 404


async def test_too_costly_query_gets_an_error(tmp_path: Path) -> None:
    service = IndexBackend(tmp_path)
    async with client_of(service) as client:
        await client.put("/documents/1", json={"text": "a " * 200_000})
        answer = await client.get("/search", params={"q": f'"{"a " * 100}"'})
        assert answer.status_code == 422
        assert answer.json()["error"]["code"] == "costly"


def test_snippet_is_html_of_the_field_with_most_marks() -> None:
    title = Snippet("Cats & <dogs>", 0, False, ((0, 4),))
    text = Snippet("of cats & <dogs>", 5, True, ((3, 7), (11, 15)))
    assert snippet_html({"title": title}) == "<mark>Cats</mark> &amp; &lt;dogs&gt;"
    expected = "…of <mark>cats</mark> &amp; &lt;<mark>dogs</mark>&gt;…"
    assert snippet_html({"title": title, "text": text}) == expected
    assert snippet_html({}) == ""
