"""`driftline bench service`: load over HTTP, the peers, and wrong answers."""

from __future__ import annotations

import json
import tempfile
import threading
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from time import sleep

import psutil
import pytest
from click.testing import CliRunner, Result

from driftline.bench.commands import bench
from driftline.bench.measuring.load import (
    KINDS,
    DocumentArrival,
    DrawnQuery,
    Load,
    Measurements,
    QueryArrival,
)
from driftline.bench.measuring.served import drive, fill
from driftline.bench.systems.peers import PEERS, Peer, observe
from driftline.engine.errors import Unavailable


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(arguments: str) -> Result:
    return CliRunner().invoke(bench, ["service", *arguments.split()])


@pytest.mark.soak
def test_a_service_and_its_peers_get_the_same_load(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("tantivy")
    files = here / "files"
    files.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(files))
    done = run(
        "--documents 50 --seconds 1 --rate 40 --searches 60 --searchers 2 --compare --json s.json"
    )
    assert done.exit_code == 0, done.output
    found = json.loads((here / "s.json").read_text())
    assert list(found["peers"]) == ["tantivy", "tantivy-100ms", "sqlite-fts5"]
    measured = [found, *(each for each in found["peers"].values() if "skipped" not in each)]
    assert len(measured) >= 4
    counts = {kind: found["queries"][kind]["count"] for kind in KINDS}
    assert sum(counts.values()) > 20
    for each in measured:
        assert each["errors"] == 0
        assert each["documents_per_s"] > 0
        assert each["freshness"]["count"] == found["freshness"]["count"] > 10
        assert 0 < each["durable"]["p50_ms"] <= each["freshness"]["p50_ms"]
        assert each["freshness"]["p50_ms"] <= each["freshness"]["p99_ms"]
        assert {kind: each["queries"][kind]["count"] for kind in each["queries"]} == counts
    parts = {
        *("gateway", "journal", "documents-0", "documents-1"),
        *("fork-server", "master", "node-0"),
    }
    assert set(found["memory_mib"]) == set(found["cores"]) == parts
    assert found["figures"]["documents"] <= 50 + 160
    assert "bytes_per_posting" in found
    assert (here / "out" / "service.png").read_bytes().startswith(b"\x89PNG")
    assert not list(files.iterdir())
    commands = [" ".join(each.info["cmdline"] or ()) for each in psutil.process_iter(["cmdline"])]
    assert not [command for command in commands if str(files) in command]


def test_a_wrong_answer_is_an_error(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def observe(load: Load, *_: object) -> Measurements:
        observed = Measurements(freshness_ms=[1.0, 2.0])
        observed.errors["not found"] += 3
        return observed

    monkeypatch.setattr("driftline.bench.experiments.service.measure_service", observe)
    done = run("--documents 20 --seconds 1 --json s.json")
    assert done.exit_code == 1
    assert "Error: not found: 3 times" in done.output
    assert json.loads((here / "s.json").read_text())["errors"] == 3


@pytest.mark.soak
@pytest.mark.skipif(find_spec("locust") is None, reason="locust is not installed")
def test_users_of_locust_find_what_they_put(here: Path) -> None:
    for seconds in (10, 60):  # a slow machine needs more time
        done = run(f"--documents 20 --locust 9 --seconds {seconds} --json s.json")
        assert done.exit_code == 0, done.output
        found = json.loads((here / "s.json").read_text())
        requests = {row["request"]: row for row in found["rows"]}
        assert sum(row["failures"] for row in requests.values()) == 0
        if set(requests) >= {"put", "find", "fresh", "change"}:
            break
    else:
        pytest.fail(f"within 60 seconds there were only {sorted(requests)}")
    assert min(requests["fresh"]["count"], requests["find"]["count"]) > 0
    assert any(name.startswith("search ") for name in requests)
    assert set(found["memory_mib"]) == set(found["grown_mib"]) >= {"gateway", "journal"}


@pytest.mark.parametrize(
    ("arguments", "expected_text"),
    [
        ("--locust 5 --compare", "--compare cannot be given with --locust"),
        ("--locust 5 --url http://localhost:1 --nodes 2", "--nodes cannot be given with --url"),
        ("--url http://localhost:1", "--url is for --locust"),
        ("--seconds nan", "nan is not a finite number"),
    ],
)
def test_unmeasurable_arguments_are_a_usage_error(
    here: Path, arguments: str, expected_text: str
) -> None:
    done = run(arguments)
    assert done.exit_code == 2
    assert expected_text in " ".join(done.output.split())


SLOW_S = 0.2


class Handler(BaseHTTPRequestHandler):
    """HTTP handler with slow searches; it never finds the document "lost" and rejects "bad"."""

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
    assert max(latencies) < 20 * 1000 * SLOW_S / 2, "no request has waited for another"


def test_fill_fails_if_a_document_was_not_acknowledged(url: str) -> None:
    assert fill(url, [("1", "tea")]) > 0
    with pytest.raises(Unavailable, match="1 of 2 documents were not inserted"):
        fill(url, [("1", "tea"), ("2", "cake")])


DOCUMENTS = [("1", "Green tea and cake"), ("2", "tea of the green leaf"), ("3", "Cake, and more")]


@pytest.fixture(params=list(PEERS))
def peer(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Peer]:
    if request.param.startswith("tantivy"):
        pytest.importorskip("tantivy")
    made = PEERS[request.param](tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize(
    ("kind", "words", "expected"),
    [
        ("term", ["tea"], {"1", "2"}),
        ("union2", ["leaf", "more"], {"2", "3"}),
        ("union5", ["leaf", "more", "no", "such", "word"], {"2", "3"}),
        ("intersection", ["cake", "green"], {"1"}),
        ("phrase", ["green", "tea"], {"1"}),
    ],
)
def test_peer_answers_every_kind_of_query(
    peer: Peer, kind: str, words: list[str], expected: set[str]
) -> None:
    peer.write(DOCUMENTS)
    assert set(peer.open_searcher()(DrawnQuery(kind, words))) == expected


class SlowPeer:
    """Peer whose commits take 30 ms each; it finds all documents except number 7."""

    def __init__(self, every_s: float) -> None:
        self.commit_every_s = every_s
        self.sizes: list[int] = []
        self._words: dict[str, str] = {}

    def write(self, documents: Sequence[tuple[str, str]]) -> None:
        sleep(0.03)
        self.sizes.append(len(documents))
        self._words.update((text, id) for id, text in documents if id != "7")

    def open_searcher(self) -> SlowPeer:
        return self

    def __call__(self, query: DrawnQuery) -> list[str]:
        found = self._words.get(query.words[0])
        return [] if found is None else [found]

    def close(self) -> None: ...


def load_of(count: int, every_s: float) -> Load:
    arriving = [DocumentArrival(n * every_s, str(n), f"word{n}", f"word{n}") for n in range(count)]
    return Load([], arriving, [QueryArrival(0.0, DrawnQuery("term", ["word0"]))], 0.0)


def test_freshness_includes_waiting_for_earlier_commits() -> None:
    """No coordinated omission: 20 documents arrive in 0.1 s, and each commit takes 30 ms."""
    peer = SlowPeer(0.0)
    observed = observe(peer, load_of(20, 0.005))
    assert peer.sizes == [1] * 20
    assert observed.errors == {"not found": 1}
    assert len(observed.freshness_ms) == 19
    assert observed.freshness_ms[-1] > 20 * 30 - 100
    assert observed.figures["behind_s"] > 0.4
    assert 30 <= observed.figures["commit_p50_ms"] < 300
