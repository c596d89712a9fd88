"""The report: JSON has one form, tables compare what has the same ends, pictures are pictures."""

import json
import math
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console
from rich.table import Table

from driftline.bench.measuring.meter import LatencyResult, ThroughputResult, percentiles
from driftline.bench.report.check import ALL_RIGHT
from driftline.bench.report.pictures import draw_latency, draw_throughput
from driftline.bench.report.rows import ENOUGH_FOR_P99, LATENCY_FIGURES, LatencyRow, ThroughputRow
from driftline.bench.report.tables import Latencies, Throughputs, over_baseline
from driftline.bench.systems.cases import FLOOR, MICRO_BATCH, TCP_CURVE, Case

PER_RUN = ENOUGH_FOR_P99 // 3


def run(p50_ms: float, lost: int = 0, count: int = PER_RUN) -> LatencyResult:
    """Latencies from almost 0 to twice the median."""
    values = [2 * p50_ms * i / count for i in range(1, count + 1)]
    late = [0.01] * count
    return LatencyResult(count, percentiles(values), percentiles(late), lost, 0, values, late)


def latency_row(case: Case, *medians: float, lost: int = 0) -> LatencyRow:
    return LatencyRow(case, [run(p50, lost) for p50 in medians])


@pytest.fixture
def latencies() -> Latencies:
    rows = [
        latency_row(Case(FLOOR, None), 1.0, 1.2, 0.8),
        latency_row(Case("none", None), 1.5, 1.8, 1.6),
        latency_row(Case("exactly-once", 50), 1.7, 1.5, 9.0),
        latency_row(Case("two-phase", 1000), 500.0, 480.0, 520.0, lost=7),
        LatencyRow(Case(MICRO_BATCH, None), [], "no Java"),
        latency_row(Case(FLOOR, None, True), 4.0, 5.0, 6.0),
        latency_row(Case("exactly-once", 1000, True), 6.0, 5.0, 7.0),
    ]
    return Latencies(rate=100, documents=660, nodes=2, rows=rows, sync_ms=1.25)


@pytest.fixture
def throughputs() -> Throughputs:
    def row(case: Case, *rates: float) -> ThroughputRow:
        return ThroughputRow(case, [ThroughputResult(r, 125 * r, 1.9, 0, 0) for r in rates])

    rows = [
        row(Case(FLOOR, None), 100.0, 200.0, 50.0),
        row(Case("none", None), 50.0, 180.0, 30.0),
        row(Case("exactly-once", 500), 25.0, 90.0, 30.0),
    ]
    return Throughputs(documents=1000, nodes=2, rows=rows)


def shown(tables: list[Table]) -> list[str]:
    out = StringIO()
    Console(file=out, width=140).print(*tables, sep="\n")
    return [" ".join(line.split()) for line in out.getvalue().splitlines() if line.strip()]


def test_the_json_of_latencies(latencies: Latencies) -> None:
    written = json.loads(json.dumps(latencies.as_json(), allow_nan=False))
    assert list(written) == ["rate", "documents", "nodes", "floor", "rows", "durable"]
    figures = {"p50_ms": 1.7, "p75_ms": 2.55, "p95_ms": 3.23, "p99_ms": 3.366, "max_ms": 18.0}
    row = written["rows"][1]
    runs = row.pop("runs")
    assert row == {
        "policy": "exactly-once",
        "checkpoint_ms": 50,
        "transport": "ipc",
        **figures,
        "lost": 0,
        "duplicated": 0,
        "latencies": ENOUGH_FOR_P99,
        "late_p99_ms": 0.01,
        "durable": ["state"],
        "of_floor": [1.7, 1.25, 11.25],
        "of_none": [1.062, 0.833, 5.625],
    }
    assert [run["p50_ms"] for run in runs] == [1.7, 1.5, 9.0]
    assert all(run["late_max_ms"] == 0.01 for run in runs)
    assert (written["floor"]["p50_ms"], written["floor"]["durable"]) == (1.0, [])
    durable = written["durable"]
    assert durable["sync_ms"] == 1.25
    assert durable["floor"]["durable"] == ["inputs", "outputs"]
    assert [(row["policy"], row["durable"], row["of_floor"]) for row in durable["rows"]] == [
        ("exactly-once", ["inputs", "state", "outputs"], [1.2, 1.0, 1.5])
    ]


def test_the_json_of_throughputs(throughputs: Throughputs) -> None:
    written = json.loads(json.dumps(throughputs.as_json(), allow_nan=False))
    assert list(written) == ["rate", "documents", "nodes", "floor", "rows", "durable"]
    assert written["durable"] is None
    row = written["rows"][1]
    assert [run["documents_per_s"] for run in row.pop("runs")] == [25.0, 90.0, 30.0]
    assert row == {
        "policy": "exactly-once",
        "checkpoint_ms": 500,
        "transport": "ipc",
        "documents_per_s": 30.0,
        "outputs_per_s": 3750.0,
        "cpu_cores": 1.9,
        "lost": 0,
        "duplicated": 0,
        "durable": ["state"],
        "of_floor": [0.3, 0.25, 0.6],
        "of_none": [0.6, 0.5, 1.0],
    }


def test_another_transport_is_compared_with_ipc_and_with_its_own_baseline() -> None:
    rows = [
        latency_row(Case("none", None), 1.0, 2.0),
        latency_row(Case("none", None, transport=TCP_CURVE), 2.0, 3.0),
        latency_row(Case("exactly-once", 50), 1.5, 2.5),
        latency_row(Case("exactly-once", 50, transport=TCP_CURVE), 2.25, 3.25),
    ]
    latencies = Latencies(rate=100, documents=660, nodes=2, rows=rows)
    written = json.loads(json.dumps(latencies.as_json(), allow_nan=False))["rows"]
    assert [row["transport"] for row in written] == ["ipc", TCP_CURVE] * 2
    assert [row.get("over_ipc") for row in written] == [None, [1.0] * 3, None, [0.75] * 3]
    assert over_baseline(rows[3], rows).median == 0.25
    assert "exactly-once, tcp-curve state 50 +0.25 +0.75" in shown(latencies.tables())


def test_a_figure_that_does_not_exist_is_null() -> None:
    empty = LatencyResult(0, percentiles([]), percentiles([]), 5, 0)
    written = Latencies(50, 0, 2, [LatencyRow(Case(FLOOR, None), [empty])]).as_json()
    assert math.isnan(empty.latency["p50_ms"])
    assert '"p50_ms": null' in json.dumps(written, allow_nan=False)


def test_the_tables_of_latencies_compare_what_has_the_same_ends(latencies: Latencies) -> None:
    lines = shown(latencies.tables())
    assert lines[0] == "Latency in ms at 100 documents a second, 2 nodes"
    assert lines[3:10] == [
        "floor 1.00 (0.80-1.20) 1.50 1.90 1.98 (1.58-2.38) 2.40 0.01",
        "none 1.60 (1.50-1.80) 2.40 3.04 3.17 (2.97-3.56) 3.60 0.01",
        "exactly-once state 50 1.70 (1.50-9.00) 2.55 3.23 3.37 (2.97-17.8) 18.0 0.01",
        "two-phase state 1000 500 (480-520) 750 950 990 (950-1030) 1040 0.01",
        "micro-batch state - - - - - -",
        "floor inputs, outputs 5.00 (4.00-6.00) 7.50 9.50 9.90 (7.92-11.9) 12.0 0.01",
        "exactly-once inputs, state, outputs 1000 6.00 (5.00-7.00) 9.00 11.4 11.9 (9.90-13.9) "
        "14.0 0.01",
    ]
    told = " ".join(lines)
    assert "Medians of 3 runs, with the least and the largest of them." in told
    assert "max: the largest latency of all runs." in told
    assert "To append 4 KiB and wait for the disk takes 1.25 ms here." in lines
    assert "micro-batch: no Java" in lines
    compared = lines.index("Medians compared, round by round")
    assert lines[compared + 3 :] == [
        "floor",
        "none x1.60 (1.50-2.00)",
        "exactly-once state 50 x1.70 (1.25-11.2) +0.10 (-0.30 to +7.40)",
        "two-phase state 1000 x500 (400-650) +498 (+478 to +518)",
        "micro-batch state - -",
        "floor inputs, outputs",
        "exactly-once inputs, state, outputs 1000 x1.20 (1.00-1.50)",
    ]


def test_tables_say_that_outputs_were_checked_unless_a_row_is_wrong(latencies: Latencies) -> None:
    right = Latencies(100, 660, 2, [row for row in latencies.rows if not row.lost])
    assert ALL_RIGHT in " ".join(shown(right.tables()))
    assert "lost" not in " ".join(shown(latencies.tables()))


def test_no_figure_of_a_row_is_above_its_largest_latency() -> None:
    row = latency_row(Case("none", None), 40.0, 90.0, 30.0)
    assert row.max_ms == 180.0
    assert all(row.figure(name).most <= row.max_ms for name in LATENCY_FIGURES)
    assert row.as_json()["max_ms"] == 180.0


def test_a_row_with_too_few_latencies_has_no_99th_percentile() -> None:
    rows = [LatencyRow(Case(FLOOR, None), [run(1.0, count=PER_RUN)] * 2)]
    latencies = Latencies(100, 660, 2, rows)
    lines = shown(latencies.tables())
    assert lines[3] == "floor 1.00 1.50 1.90 2.00"
    assert "p99 needs 1,500 latencies in a row; here are 1,000" in " ".join(lines)
    written = json.dumps(latencies.as_json()["floor"])
    assert written.count('"p99_ms": null') == written.count('"late_p99_ms": null') == 3
    assert '_p99_ms": 0' not in written


def test_the_table_of_throughputs_shows_the_spread(throughputs: Throughputs) -> None:
    lines = shown(throughputs.tables())
    assert lines[1].endswith("documents/s outputs/s cores of floor of none")
    assert lines[3:6] == [
        "floor 100 (50-200) 12,500 1.90",
        "none 50 (30-180) 6,250 1.90 50% (50%-90%)",
        "exactly-once state 500 30 (25-90) 3,750 1.90 30% (25%-60%) 60% (50%-100%)",
    ]
    notes = " ".join(lines[6:])
    assert "outputs: a document has one for each of its different words; cores: " in notes
    assert ALL_RIGHT in notes


def test_the_pictures_are_written(
    latencies: Latencies, throughputs: Throughputs, tmp_path: Path
) -> None:
    nothing = Latencies(50, 0, 2, [LatencyRow(Case(FLOOR, None), [])])
    draw_latency(latencies, tmp_path / "latency.png")
    draw_latency(Latencies(50, 100, 2, latencies.rows[:1]), tmp_path / "alone.png")
    draw_latency(nothing, tmp_path / "nothing.png")
    draw_throughput(throughputs, tmp_path / "throughput.png")
    assert len(list(tmp_path.iterdir())) == 4
    for path in tmp_path.iterdir():
        assert path.read_bytes().startswith(b"\x89PNG")
