"""Percentiles of raw records on Spark equal those of the benchmark and of numpy."""

from __future__ import annotations

import json
from contextlib import nullcontext
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from rich.console import Console

from driftline.bench.commands import bench
from driftline.bench.experiments.comparison import write_raw
from driftline.bench.measuring.meter import RunMeter, percentiles
from driftline.bench.systems.cases import FLOOR, Case
from driftline.engine.errors import Unavailable
from driftline.pipeline.commands import Sessions
from driftline.pipeline.commands import spark as command
from driftline.pipeline.latency import (
    PERCENTILES,
    Series,
    Summary,
    analyse,
    read_records,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CASES = [Case("none", None), Case("exactly-once", 50), Case("two-phase", 50)]
FLOOR_CASE, DURABLE = Case(FLOOR, None), Case("exactly-once", 50, durable=True)
ORDER = [FLOOR_CASE, *CASES, CASES[0], FLOOR_CASE, DURABLE]


def run(seed: int, documents: int = 400) -> RunMeter:
    """Return a run in which document 7 has no word, one loses a record and one has a duplicate."""
    expected = [0 if number == 7 else 2 for number in range(documents)]
    meter = RunMeter(expected, warmup=50)
    random = np.random.default_rng(seed)
    for number, words in enumerate(expected):
        now = 3.0 + number / 50
        meter.record_sent(number, now=now, due=now - number / 1e6)
        if words:
            meter.record_arrival(number, ["a"], now)
            latency_s = float(random.lognormal(1, 1)) / 1000
            meter.record_arrival(number, ["a"] if number == 20 + seed else ["b"], now + latency_s)
    return meter


def test_figures_equal_those_of_the_bench(spark: SparkSession, tmp_path: Path) -> None:
    runs = [(case, run(seed)) for seed, case in enumerate(ORDER)]
    write_raw(tmp_path, runs)
    assert len(list(tmp_path.glob("*.jsonl"))) == len(runs)

    found = analyse(read_records(spark, [tmp_path]))
    assert found.records == 400 * len(runs)
    series = {Case(s.policy, s.snapshot_interval_ms, s.durable): s for s in found.series}
    assert list(series) == [FLOOR_CASE, *CASES, DURABLE]
    for case in series:
        meters = [meter for of, meter in runs if of == case]
        latencies = [round(ms, 3) for meter in meters for ms in meter.latencies_ms()]
        late = percentiles([ms for meter in meters for ms in meter.send_delay_ms()])
        figures = series[case].as_json()
        expected = percentiles(latencies)
        assert {name: figures[name] for name in expected} == expected
        assert figures["documents"] == len(latencies)
        assert figures["send_delay_p99_ms"] == round(late["p99_ms"], 3)
        assert figures["lost"] == figures["duplicated"] == len(meters)

    out = StringIO()
    Console(file=out, width=140).print(found.table())
    assert f"{series[FLOOR_CASE].overall.percentiles['p50_ms']:.2f}" in out.getvalue()


def test_percentiles_of_many_records_are_exact(spark: SparkSession, tmp_path: Path) -> None:
    numbers = spark.range(0, 40_000, 1, 4)
    path = tmp_path / "records.parquet"
    numbers.selectExpr(
        "if(id % 4 = 0, 'two-phase', 'exactly-once') AS policy",
        "cast(if(id % 8 < 4, 50, 500) AS int) AS snapshot_interval_ms",
        "id AS document",
        "id / 200 AS at_s",
        "round(exp(randn(7)) * if(id % 4 = 0, 100, 2), 3) AS latency_ms",
        "0L AS lost",
    ).write.parquet(str(path))
    found = analyse(read_records(spark, [path]), bucket_s=50)
    assert (found.records, found.bucket_s) == (40_000, 50)

    table = pq.read_table(path).to_pandas()
    for series in found.series:
        wanted = table.policy == series.policy
        wanted &= table.snapshot_interval_ms == series.snapshot_interval_ms
        chosen = table[wanted]
        latencies = np.asarray(chosen.latency_ms)
        assert series.overall.documents == len(latencies)
        assert list(series.overall.percentiles.values()) == list(
            np.quantile(latencies, list(PERCENTILES.values()), method="inverted_cdf")
        )
        assert [start for start, _ in series.timeline] == [0, 50, 100, 150]
        for start, part in series.timeline:
            within = latencies[(chosen.at_s >= start) & (chosen.at_s < start + 50)]
            assert part.documents == len(within)
            assert part.percentiles["p99_ms"] == np.quantile(within, 0.99, method="inverted_cdf")
        assert sum(count for _, _, count in series.histogram) == len(latencies)
        start, end, count = max(series.histogram, key=lambda bucket: bucket[2])
        assert count == pytest.approx(((latencies >= start) & (latencies < end)).sum(), abs=20)
    assert len(found.series) == 4


def test_malformed_record_is_reported_with_its_file(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "01-none.jsonl").write_text('{"policy": "none", "at_s": 1, "latency_ms": 1}\n')
    (tmp_path / "02-other.jsonl").write_text('{"policy": 7}')
    with pytest.raises(Unavailable, match=r"^02-other.jsonl holds a line that is not a record"):
        analyse(read_records(spark, [tmp_path]))


def test_missing_or_empty_record_files_raise_unavailable(
    spark: SparkSession, tmp_path: Path
) -> None:
    for name in ("", "nowhere.jsonl"):
        with pytest.raises(Unavailable, match="bench latency --raw"):
            read_records(spark, [tmp_path / name])
    (tmp_path / "empty.jsonl").touch()
    with pytest.raises(Unavailable, match="no record"):
        analyse(read_records(spark, [tmp_path]))


def test_command_plots_the_records_of_the_bench(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Sessions, "start", lambda self, what: nullcontext(spark))
    raw, plot, done = tmp_path / "raw", tmp_path / "latency.png", tmp_path / "latency.json"
    bench_options = [
        "--documents=60",
        "--warmup=10",
        "--rate=200",
        "--policies=none",
        "--no-durable",
        "--repeat=1",
    ]
    bench_options += [f"--raw={raw}", f"--plot={tmp_path / 'bars.png'}"]
    assert CliRunner().invoke(bench, ["latency", *bench_options]).exit_code == 0
    again = CliRunner().invoke(bench, ["latency", *bench_options])
    assert "holds files already" in again.output

    options = [str(raw), "--bucket-s=0.1", f"--plot={plot}", f"--json={done}"]
    found = CliRunner().invoke(command, ["latency", *options])
    assert found.exit_code == 0, found.output
    rows = json.loads(done.read_text())["rows"]
    assert [(row["policy"], row["documents"]) for row in rows] == [("floor", 50), ("none", 50)]
    assert sum(part["documents"] for part in rows[0]["timeline"]) == 50
    assert plot.read_bytes().startswith(b"\x89PNG")


def series(policy: str, interval_ms: int | None, durable: bool) -> Series:
    summary = Summary(4, dict.fromkeys(PERCENTILES, 2.0), 0, 0)
    return Series(policy, interval_ms, durable, summary, [(0.0, summary)], [(1, 2, 3), (2, 3, 1)])
