"""Acknowledged writes are readable after a kill of any process, without further writes."""

from __future__ import annotations

import json
import os
from pathlib import Path

import httpx

from tests.index.truth.service import PROCESS_NAMES, ServiceProcess

DOCUMENTS = int(os.environ.get("DOCUMENTS", "200"))

LINES = 100


def test_acknowledged_writes_survive_kills(tmp_path: Path) -> None:
    """Kill each process before a write; the write becomes visible although no other write follows.

    Then print how long a restart with many documents takes.
    """
    service = ServiceProcess(tmp_path / "state", "--nodes", "2", "--searchers", "2")
    try:
        service.start()
        with httpx.Client(base_url=service.url, timeout=120.0) as http:
            for number, name in enumerate((*PROCESS_NAMES, "journal"), 1):
                service.processes()[name].kill()
                written = http.put(f"/documents/{number}", json={"title": "tea"})
                assert written.status_code == 200, written.text
                parameters = {"q": "tea", "after": written.json()["label"]}
                found = http.get("/search", params=parameters)
                assert found.status_code == 200, f"{name}: {found.text}"
                assert found.json()["total"] == number, name
            for first in range(0, DOCUMENTS, LINES):
                lines = [
                    {"id": f"many-{i}", "text": f"leaf water cup {i % 97} " * 20}
                    for i in range(first, min(first + LINES, DOCUMENTS))
                ]
                body = "\n".join(map(json.dumps, lines))
                written = http.post("/documents:bulk", params={"wait": "visible"}, content=body)
                assert written.text.count('"label"') == len(lines), written.text[-300:]
        for shut_down in (service.terminate, service.kill):
            shut_down()
            took = service.start()
            found = httpx.get(f"{service.url}/count", params={"q": "leaf"})
            print(f"\nready with {DOCUMENTS:,} documents after {shut_down.__name__}: {took:.1f} s")
            assert found.json()["total"] == DOCUMENTS
        assert service.terminate() == 0
    finally:
        service.close()
