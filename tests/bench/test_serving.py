"""`driftline bench service` measures a real service, and says so if it answers wrongly."""

from __future__ import annotations

import json
import tempfile
from importlib.util import find_spec
from pathlib import Path

import psutil
import pytest
from click.testing import CliRunner, Result

from driftline.bench.commands import bench
from driftline.bench.measuring.load import KINDS, Load, Measurements


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(arguments: str) -> Result:
    return CliRunner().invoke(bench, ["service", *arguments.split()])


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
    parts = {"gateway", "journal", "documents", "documents-1", "master", "node"}
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
    assert "driftline: not found: 3 times" in done.output
    assert json.loads((here / "s.json").read_text())["errors"] == 3


@pytest.mark.skipif(find_spec("locust") is None, reason="locust is not installed")
def test_users_of_locust_find_what_they_put(here: Path) -> None:
    for seconds in (10, 60):  # a slow machine needs more of them
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
    ("arguments", "said"),
    [
        ("--locust 5 --compare", "--compare cannot be given with --locust"),
        ("--locust 5 --url http://localhost:1 --nodes 2", "--nodes cannot be given with --url"),
        ("--url http://localhost:1", "--url is for --locust"),
        ("--seconds nan", "nan is not a finite number"),
    ],
)
def test_unmeasurable_arguments_are_a_usage_error(here: Path, arguments: str, said: str) -> None:
    done = run(arguments)
    assert done.exit_code == 2
    assert said in " ".join(done.output.split())
