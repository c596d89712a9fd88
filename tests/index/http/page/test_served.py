"""What the page stands on, of a real service with two shards."""

from __future__ import annotations

from pathlib import Path

import httpx

from driftline.index.http.page.routes import FILES
from driftline.serve.http.metrics import figures_in
from tests.index.http.page.served import served


def test_a_service_has_the_page_and_what_that_shows(tmp_path: Path) -> None:
    with served(tmp_path, "--searchers", "2") as url, httpx.Client(base_url=url) as client:
        page = client.get("/")
        assert page.content == (FILES / "index.html").read_bytes()
        ids = [f"d{n}" for n in range(8)]  # on both shards
        for id in ids:
            client.put(f"/documents/{id}?wait=visible", json={"title": id}).raise_for_status()
        for id in ids:
            assert client.get(f"/documents/{id}").json()["document"] == {"title": id}
        assert client.get("/documents/none").status_code == 404
        found = client.get("/search", params={"q": "d1"})
        assert float(found.headers["server-timing"].removeprefix("app;dur=")) > 0
        figures = figures_in(client.get("/metrics").text)
        assert figures["flow"]["nodes"] == 1
        assert figures["gateway"]["outputs"] >= len(ids)
        for name in "delay_p50_s", "delay_p99_s", "answer_p50_s", "answer_p99_s":
            assert 0 < figures["gateway"][name] < 10
    with served(
        tmp_path, "--searchers", "2"
    ) as url:  # what was written before is not taken for late
        figures = figures_in(httpx.get(f"{url}/metrics").text)
        assert "delay_p50_s" not in figures["gateway"]
