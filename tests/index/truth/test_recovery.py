"""What was acknowledged can be read after a kill of any process, though nothing more is written."""

from __future__ import annotations

import json
import os
from pathlib import Path

import httpx

from tests.index.truth.service import PARTS, Service

DOCUMENTS = int(os.environ.get("DOCUMENTS", "200"))

LINES = 100


def test_acknowledged_writes_survive_kills(tmp_path: Path) -> None:
    """A write is seen after each kill without another write, which would bring on what waits.

    How long many documents take to be there again is printed.
    """
    service = Service(tmp_path / "state", "--nodes", "2", "--searchers", "2")
    try:
        service.start()
        with httpx.Client(base_url=service.url, timeout=120.0) as http:
            for number, part in enumerate((*PARTS, "journal"), 1):
                service.parts()[part].kill()
                written = http.put(f"/documents/{number}", json={"title": "tea"})
                assert written.status_code == 200, written.text
                parameters = {"q": "tea", "after": written.json()["label"]}
                found = http.get("/search", params=parameters)
                assert found.status_code == 200, f"{part}: {found.text}"
                assert found.json()["total"] == number, part
            for first in range(0, DOCUMENTS, LINES):
                lines = [
                    {"id": f"many-{i}", "text": f"leaf water cup {i % 97} " * 20}
                    for i in range(first, min(first + LINES, DOCUMENTS))
                ]
                body = "\n".join(map(json.dumps, lines))
                written = http.post("/documents:bulk", params={"wait": "visible"}, content=body)
                assert written.text.count('"label"') == len(lines), written.text[-300:]
        for ends in (service.end, service.kill):
            ends()
            took = service.start()
            found = httpx.get(f"{service.url}/count", params={"q": "leaf"})
            print(f"\nready with {DOCUMENTS:,} documents after {ends.__name__}: {took:.1f} s")
            assert found.json()["total"] == DOCUMENTS
        assert service.end() == 0
    finally:
        service.close()
