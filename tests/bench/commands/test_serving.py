"""`driftline bench service` measures a real service, and says so if it answers wrongly."""

from __future__ import annotations

import json
from pathlib import Path

import psutil
import pytest
from click.testing import CliRunner, Result

from driftline.bench.commands import bench
from driftline.bench.measuring.load import Load, Observed
from driftline.bench.measuring.queries import KINDS


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(arguments: str) -> Result:
    return CliRunner().invoke(bench, ["service", *arguments.split()])


def test_a_service_and_its_peers_get_the_same_load(here: Path) -> None:
    pytest.importorskip("tantivy")
    before = set(psutil.pids())
    done = run(
        "--documents 50 --seconds 2 --rate 20 --searches 40 --searchers 2 --compare --json s.json"
    )
    assert done.exit_code == 0, done.output
    found = json.loads((here / "s.json").read_text())
    assert list(found["peers"]) == ["tantivy", "tantivy-100ms", "sqlite-fts5", "redis-search"]
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
    parts = {"gateway", "journal", "documents", "documents-1", "master", "node"}
    assert set(found["memory_mib"]) == set(found["cores"]) == parts
    assert found["figures"]["documents"] <= 50 + 60
    assert "bytes_per_posting" in found
    assert (here / "out" / "service.png").read_bytes().startswith(b"\x89PNG")
    left = [psutil.Process(pid).cmdline() for pid in set(psutil.pids()) - before]
    assert not [command for command in left if str(here) in " ".join(command)]


def test_a_wrong_answer_is_an_error(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def observe(load: Load, *_: object) -> Observed:
        observed = Observed(freshness=[1.0, 2.0])
        observed.errors["not found"] += 3
        return observed

    monkeypatch.setattr("driftline.bench.experiments.service.measure_service", observe)
    done = run("--documents 20 --seconds 1 --json s.json")
    assert done.exit_code == 1
    assert "driftline: not found: 3 times" in done.output
    assert json.loads((here / "s.json").read_text())["errors"] == 3
