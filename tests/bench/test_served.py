"""The driver of HTTP: nothing waits for what was asked before, and errors are counted."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from time import sleep

import pytest

from driftline.bench.measuring.load import (
    DocumentArrival,
    DrawnQuery,
    Load,
    Measurements,
    QueryArrival,
)
from driftline.bench.measuring.served import drive, fill
from driftline.engine.errors import Unavailable

SLOW_S = 0.2


class Handler(BaseHTTPRequestHandler):
    """Searches take long; the document "lost" is never found, "bad" is refused."""

    protocol_version = "HTTP/1.1"

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        id = self.path.rpartition("/")[2]
        self._answer(400 if id == "bad" else 200, {"id": id, "label": "L" + id})

    def do_GET(self) -> None:
        if self.path.startswith("/count"):
            self._answer(200, {"total": 1})
        elif "after=L" in self.path:
            id = self.path.rpartition("after=L")[2]
            self._answer(200, {"hits": [{"id": "another" if id == "lost" else id}]})
        else:
            sleep(SLOW_S)
            self._answer(200, {"hits": []})

    def do_POST(self) -> None:
        while size := int(self.rfile.readline(), 16):
            self.rfile.read(size + 2)
        self.rfile.readline()
        self._answer(200, {"id": "1", "label": "L"})

    def _answer(self, status: int, answer: object) -> None:
        body = json.dumps(answer).encode() + b"\n"
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def url() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_requests_start_on_schedule_and_errors_are_counted(url: str) -> None:
    ids = ["good", "lost", "bad", "fine"]
    arriving = [DocumentArrival(n * 0.01, id, "text", f"w{n}") for n, id in enumerate(ids)]
    asked = [QueryArrival(n * 0.01, DrawnQuery("term", ["tea"])) for n in range(20)]
    observed, samples = Measurements(), list[int]()
    drive(url, Load([], arriving, asked, 0.0), observed, lambda: samples.append(1))
    assert observed.errors == {"not found": 1, "put: status 400": 1}
    assert (len(observed.freshness_ms), len(observed.acknowledged_ms), len(samples)) == (2, 2, 2)
    latencies = observed.queries["term"]
    assert len(latencies) == 20
    assert min(latencies) >= 1000 * SLOW_S
    assert max(latencies) < 20 * 1000 * SLOW_S / 2, "none has waited for the others"


def test_a_server_that_is_gone_is_an_error() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    observed = Measurements()
    load = Load([], [], [QueryArrival(0.0, DrawnQuery("term", ["tea"]))], 0.0)
    drive(f"http://127.0.0.1:{port}", load, observed, lambda: None)
    assert observed.errors.total() == 1
    assert not observed.queries


def test_fill_fails_if_a_document_was_not_acknowledged(url: str) -> None:
    assert fill(url, [("1", "tea")]) > 0
    with pytest.raises(Unavailable, match="1 documents were not taken"):
        fill(url, [("1", "tea"), ("2", "cake")])
