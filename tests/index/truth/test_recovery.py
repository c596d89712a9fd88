"""What was acknowledged can be read after a kill of any process, though nothing more is written."""

from __future__ import annotations

import json
import os
from pathlib import Path

import httpx
import pytest

from tests.index.truth.service import PARTS, Service

DOCUMENTS = int(os.environ.get("DOCUMENTS", "2000"))

LINES = 1000


@pytest.fixture
def service(tmp_path: Path) -> Service:
    return Service(tmp_path / "state", "--nodes", "2", "--searchers", "2")


def test_a_write_is_seen_after_each_kill(service: Service) -> None:
    """Without another write, which would bring on what waits."""
    try:
        service.start()
        with httpx.Client(base_url=service.url, timeout=60.0) as http:
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


def test_many_documents_are_there_again_after_the_end_and_after_a_kill(service: Service) -> None:
    """How long that takes is printed."""
    try:
        service.start()
        with httpx.Client(base_url=service.url, timeout=120.0) as http:
            for first in range(0, DOCUMENTS, LINES):
                lines = [
                    {"id": str(i), "title": f"tea {i}", "text": f"leaf water cup {i % 97} " * 20}
                    for i in range(first, min(first + LINES, DOCUMENTS))
                ]
                body = "\n".join(map(json.dumps, lines))
                written = http.post("/documents:bulk", params={"wait": "visible"}, content=body)
                assert written.text.count('"label"') == len(lines), written.text[-300:]
        for ends in (service.end, service.kill):
            ends()
            took = service.start()
            found = httpx.get(f"{service.url}/count", params={"q": "tea"}).json()
            print(f"\nready with {DOCUMENTS:,} documents after {ends.__name__}: {took:.1f} s")
            assert found["total"] == DOCUMENTS
    finally:
        service.close()
