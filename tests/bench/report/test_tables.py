"""The report: the JSON has one form, the table leads with the floor, the pictures are pictures."""

import json
import math
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console
from rich.table import Table

from driftline.bench.measuring.meter import LatencyResult, ThroughputResult, percentiles
from driftline.bench.report.pictures import draw_latency, draw_throughput
from driftline.bench.report.tables import Latencies, LatencyRow, ThroughputRow, Throughputs


def latency(scale: float, lost: int = 0) -> LatencyResult:
    values = percentiles([scale * i / 100 for i in range(1, 101)])
    return LatencyResult(100, values, values, lost, duplicated=0)


@pytest.fixture
def latencies() -> Latencies:
    rows = [LatencyRow.of("none", None, latency(2))]
    for interval in (50, 500, 1000):
        rows.append(LatencyRow.of("exactly-once", interval, latency(3)))
        rows.append(LatencyRow.of("transactional", interval, latency(interval, lost=7)))
    return Latencies(rate=50, documents=100, nodes=2, floor=latency(1), rows=rows)


@pytest.fixture
def throughputs() -> Throughputs:
    rows = [
        ThroughputRow.of("none", None, ThroughputResult(4000, 500_000, 1.9, 0, 0)),
        ThroughputRow.of("exactly-once", 500, ThroughputResult(3000, 375_000, 1.8, 0, 3)),
    ]
    floor = ThroughputResult(6000, 750_000, 1.95, 0, 0)
    return Throughputs(documents=1000, nodes=2, floor=floor, rows=rows)


def shown(table: Table) -> list[str]:
    out = StringIO()
    Console(file=out, width=160).print(table)
    return [" ".join(line.split()) for line in out.getvalue().splitlines() if line.strip()]


def test_the_json_of_latencies(latencies: Latencies) -> None:
    written = json.loads(json.dumps(latencies.as_json(), allow_nan=False))
    assert list(written) == ["rate", "documents", "nodes", "floor", "rows"]
    assert written["floor"] == {
        "p50_ms": 0.5,
        "p75_ms": 0.75,
        "p95_ms": 0.95,
        "p99_ms": 0.99,
        "max_ms": 1.0,
    }
    assert written["rows"][1] == {
        "policy": "exactly-once",
        "checkpoint_ms": 50,
        "p50_ms": 1.5,
        "p75_ms": 2.25,
        "p95_ms": 2.85,
        "p99_ms": 2.97,
        "max_ms": 3.0,
        "lost": 0,
        "duplicated": 0,
    }
    assert written["rows"][0]["checkpoint_ms"] is None


def test_the_json_of_throughputs(throughputs: Throughputs) -> None:
    written = json.loads(json.dumps(throughputs.as_json(), allow_nan=False))
    assert list(written) == ["rate", "documents", "nodes", "floor", "rows"]
    assert written["floor"] == {
        "documents_per_s": 6000,
        "records_per_s": 750_000,
        "cpu_cores": 1.95,
    }
    assert written["rows"][1] == {
        "policy": "exactly-once",
        "checkpoint_ms": 500,
        "documents_per_s": 3000,
        "records_per_s": 375_000,
        "cpu_cores": 1.8,
        "lost": 0,
        "duplicated": 3,
    }


def test_a_figure_that_does_not_exist_is_null() -> None:
    empty = LatencyResult(0, percentiles([]), percentiles([]), 5, 0)
    written = Latencies(50, 0, 2, empty, []).as_json()
    assert math.isnan(empty.latency["p50_ms"])
    assert '"p50_ms": null' in json.dumps(written, allow_nan=False)


def test_the_table_of_latencies_leads_with_the_floor(latencies: Latencies) -> None:
    lines = shown(latencies.table())
    assert lines[0] == "Latency in ms at 50 documents a second, 2 nodes"
    assert lines[3] == "floor 0.50 0.75 0.95 0.99 1.00 0 0"
    assert lines[4] == "none 1.00 1.50 1.90 1.98 2.00 x2.00 0 0"
    assert lines[5] == "exactly-once 50 1.50 2.25 2.85 2.97 3.00 x3.00 +0.50 (x1.50) 0 0"
    assert lines[6] == "transactional 50 25.00 37.50 47.50 49.50 50.00 x50.00 +24.00 (x25.00) 7 0"


def test_the_table_of_throughputs_leads_with_the_floor(throughputs: Throughputs) -> None:
    lines = shown(throughputs.table())
    assert lines[3] == "floor 6,000 750,000 1.95 0 0"
    assert lines[4] == "none 4,000 500,000 1.90 100% 0 0"
    assert lines[5] == "exactly-once 500 3,000 375,000 1.80 75% 0 3"


def test_without_the_baseline_there_is_no_overhead(latencies: Latencies) -> None:
    alone = Latencies(50, 100, 2, latencies.floor, latencies.rows[1:2])
    assert shown(alone.table())[4] == "exactly-once 50 1.50 2.25 2.85 2.97 3.00 x3.00 0 0"


def test_the_pictures_are_written(
    latencies: Latencies, throughputs: Throughputs, tmp_path: Path
) -> None:
    without_checkpoints = Latencies(50, 100, 2, latencies.floor, latencies.rows[:1])
    draw_latency(latencies, tmp_path / "latency.png")
    draw_latency(without_checkpoints, tmp_path / "alone.png")
    draw_throughput(throughputs, tmp_path / "throughput.png")
    for path in tmp_path.iterdir():
        assert path.read_bytes().startswith(b"\x89PNG")
