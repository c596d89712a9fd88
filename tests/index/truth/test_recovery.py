"""What was acknowledged can be read after a kill of any process, though nothing more is written."""

from __future__ import annotations

from pathlib import Path

import httpx

from tests.index.truth.service import PARTS, Service


def test_acknowledged_writes_survive_kills(tmp_path: Path) -> None:
    """A write is seen after each kill without another write, which would bring on what waits."""
    service = Service(tmp_path / "state", "--nodes", "2", "--searchers", "2")
    try:
        service.start()
        with httpx.Client(base_url=service.url, timeout=120.0) as http:
            for number, part in enumerate((*PARTS, "journal"), 1):
                service.parts()[part].kill()
                written = http.put(f"/documents/{number}", json={"title": "tea"})
                assert written.status_code == 200, written.text
                given = {"q": "tea", "after": written.json()["label"]}
                found = http.get("/search", params=given)
                assert found.status_code == 200, f"{part}: {found.text}"
                assert found.json()["total"] == number, part
        assert service.end() == 0
    finally:
        service.close()
