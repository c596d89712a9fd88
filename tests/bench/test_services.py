"""What a table of services says besides its figures."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

from rich.console import Console

from driftline.bench.experiments.service import Services, draw_services
from driftline.bench.measuring.load import LoadParameters, Measurements

WANTED = LoadParameters(documents=10, rate=50, searches=50, seconds=30.0)


def observed(late_ms: float = 0.1, **others: float) -> Measurements:
    return Measurements(
        fill_per_s=100.0,
        freshness_ms=[1.0, 2.0],
        acknowledged_ms=[0.5, 1.5],
        queries={"term": [0.1, 0.3]},
        lateness_ms=[late_ms],
        figures=others,
    )


def text_of(services: Services) -> str:
    out = StringIO()
    Console(file=out, width=160).print(*services.tables())
    return " ".join(out.getvalue().split())


def test_report_warns_about_unreliable_figures() -> None:
    quiet, busy = (text_of(Services(WANTED, 1, 1, observed(ms))) for ms in (0.1, 9.0))
    assert "the machine has other work" in busy
    assert "the machine has other work" not in quiet
    assert "A p99 is steady from 1,500 latencies on; here are 2" in quiet


def test_report_notes_how_far_a_peer_fell_behind() -> None:
    commits = {"commit_p50_ms": 30.0, "commit_p99_ms": 50.0}
    peers = {
        "slow": observed(**commits, behind_s=12.0),
        "fast": observed(**commits, behind_s=0.0),
        "none": Measurements(skipped="not installed"),
    }
    services = Services(WANTED, 1, 1, observed(), peers)
    text = text_of(services)
    assert "slow: a commit alone takes 30.0 ms (p50), 50.0 ms (p99); it was 12.0 s behind" in text
    assert "fast: a commit alone takes 30.0 ms (p50), 50.0 ms (p99) " in text
    assert "none: not installed" in text
    told = services.as_json()["peers"]
    assert isinstance(told, dict)
    assert told["none"] == {"skipped": "not installed"}


def test_bytes_of_a_posting_are_those_of_all_shards() -> None:
    shards = observed(postings=30, postings_bytes=120, postings_bytes_without_positions=45)
    services = Services(WANTED, 1, 2, shards)
    assert services.as_json()["bytes_per_posting"] == 4.0
    assert "4.00 bytes a posting in segments, 1.50 without positions" in text_of(services)


def test_a_load_without_documents_or_without_queries_is_drawn(tmp_path: Path) -> None:
    for each in (Measurements(queries={"term": [0.1]}), Measurements(freshness_ms=[1.0])):
        draw_services(Services(WANTED, 1, 1, each), tmp_path / "s.png")
        assert (tmp_path / "s.png").read_bytes().startswith(b"\x89PNG")
