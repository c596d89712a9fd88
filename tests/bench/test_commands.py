"""Benchmark commands: the form of their JSON, and errors for unusable arguments."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from driftline.bench.commands import bench
from driftline.bench.experiments.rounds import Rounds
from driftline.bench.measuring.meter import RunMeter
from driftline.bench.systems.cases import Case
from driftline.engine.errors import Unavailable

Run = Callable[..., Result]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return a function that runs `driftline bench` with arguments given as one text."""
    monkeypatch.chdir(tmp_path)

    def run(arguments: str) -> Result:
        return CliRunner().invoke(bench, arguments.split())

    return run


def test_latency_writes_table_json_and_picture(run: Run, tmp_path: Path) -> None:
    done = run(
        "latency --documents 60 --warmup 10 --policies exactly-once --repeat 1 "
        "--snapshot-intervals 100 --no-durable --json results/latency.json"
    )
    assert done.exit_code == 0, done.output
    written = json.loads((tmp_path / "results" / "latency.json").read_text())
    assert list(written) == ["rate", "documents", "nodes", "floor", "rows", "durable"]
    assert (written["rate"], written["documents"], written["nodes"]) == (100, 60, 2)
    assert [(row["policy"], row["snapshot_interval_ms"]) for row in written["rows"]] == [
        ("exactly-once", 100)
    ]
    for row in (written["floor"], *written["rows"]):
        assert 0 < row["p50_ms"] <= row["max_ms"]
        assert row["p99_ms"] is None, "50 latencies are too few"
        assert (row["lost"], row["duplicated"], row["latencies"]) == (0, 0, 50)
        assert len(row["runs"]) == 1
    assert "exactly-once" in done.output
    assert "picture: out/latency.png" in done.output
    assert (tmp_path / "out" / "latency.png").read_bytes().startswith(b"\x89PNG")


def test_throughput_compares_every_round_with_the_floor(run: Run, tmp_path: Path) -> None:
    done = run("throughput --documents 600 --repeat 1 --policies exactly-once --json t.json")
    assert done.exit_code == 0, done.output
    written = json.loads((tmp_path / "t.json").read_text())
    figures = ["documents_per_s", "outputs_per_s", "cpu_cores"]
    (row,) = written["rows"]
    assert all(figure > 0 for of in (written["floor"], row) for figure in map(of.get, figures))
    assert (row["policy"], row["snapshot_interval_ms"]) == ("exactly-once", 1000)
    assert (row["lost"], row["duplicated"]) == (0, 0)
    share = row["documents_per_s"] / written["floor"]["documents_per_s"]
    assert row["of_floor"] == pytest.approx([share] * 3, abs=0.002)


def test_a_lost_output_is_an_error(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def lossy(setup: object, cases: Sequence[Case], *_: object) -> Rounds[dict[str, float]]:
        meter = RunMeter([3])
        meter.record_sent(0, 1.0, 1.0)
        return Rounds([(case, meter.throughput_figures(1.0)) for case in cases[1:]])

    monkeypatch.setattr("driftline.bench.experiments.comparison.measure_throughput", lossy)
    done = run("throughput --documents 9 --policies none")
    assert done.exit_code == 1
    assert "Error: none: 3 outputs are lost and 0 came twice" in done.output
    assert "none lost" not in done.output


def test_ordering_runs_both_orderings(run: Run, tmp_path: Path) -> None:
    done = run("ordering --nodes 1 --rates 100 --seconds 0.4 --saturated 40 --json o.json")
    assert done.exit_code == 0, done.output
    rows = json.loads((tmp_path / "o.json").read_text())["rows"]
    assert [(row["ordering"], row["rate"]) for row in rows] == [
        ("speculative", 100),
        ("buffered", 100),
        ("speculative", None),
        ("buffered", None),
    ]
    assert all(row["frames_per_document"] > 0 for row in rows)
    assert all(row["p50_ms"] > 0 and row["p99_ms"] is None for row in rows)
    assert "p99 needs 1,500 latencies" in done.output
    assert "none lost and none twice" in " ".join(done.output.split())
    assert all(
        row["out_of_order"] == row["reapplied"] == 0
        for row in rows
        if row["ordering"] != "speculative"
    )
    assert (tmp_path / "out" / "ordering.png").exists()


def test_recovery_loses_no_output_and_its_phases_sum_up(run: Run, tmp_path: Path) -> None:
    done = run("recovery --killed node --trials 1 --snapshot-interval-ms 200 --json r.json")
    assert done.exit_code == 0, done.output
    [node] = json.loads((tmp_path / "r.json").read_text())["rows"]
    assert node["killed"] == "node"
    assert (node["lost"], node["duplicated"]) == (0, 0)
    assert node["first_output_ms"] == node["first_output_max_ms"] > 0
    parts = [node[f"{part}_ms"] for part in ("detection", "restart", "restore", "replay")]
    assert min(parts) > 0
    assert sum(parts) == pytest.approx(node["first_output_ms"], abs=0.01)
    assert "no output was lost" in " ".join(done.output.split())
    assert (tmp_path / "out" / "recovery.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.soak
def test_windows_are_compared_with_a_scan_and_a_loop(run: Run, tmp_path: Path) -> None:
    done = run("windows --records 2000 --repeat 1 --seconds 1 --json w.json")
    assert done.exit_code == 0, done.output
    written = json.loads((tmp_path / "w.json").read_text())
    throughput, latency = (written[part]["rows"] for part in ("throughput", "latency"))
    assert [row["name"] for row in throughput] == ["tumbling", "scan", "bare loop"]
    assert all(row["records_per_s"] > 0 for row in throughput)
    shares = [throughput[0]["records_per_s"] / row["records_per_s"] for row in throughput[1:]]
    assert throughput[0]["of_scan"][0] == pytest.approx(shares[0], abs=0.002)
    assert throughput[0]["of_loop"][0] == pytest.approx(shares[1], abs=0.002)
    assert [row["latencies"] for row in latency] == [80, 40]
    over = latency[1]["p50_ms"] - latency[0]["p50_ms"]
    assert latency[1]["over_scan_ms"][0] == pytest.approx(over, abs=0.002)
    assert all((row["lost"], row["duplicated"]) == (0, 0) for row in (*throughput, *latency))


@pytest.mark.parametrize(
    ("arguments", "expected_text"),
    [
        ("latency --policies none,perhaps", "unknown policy 'perhaps'; choose one of none, "),
        ("latency --documents 200", "200 documents leave nothing to measure"),
        ("latency --rate 0", "--rate"),
        ("latency --snapshot-intervals 50,often", "'50,often' is not a list of whole numbers"),
        ("latency --snapshot-intervals 0", "whole numbers from 1 on"),
        ("latency --input nowhere.jsonl", "'nowhere.jsonl' does not exist"),
        ("latency --plot latency.doc", "must end in one of .png"),
        ("latency --json /dev/null/latency.json", "cannot write /dev/null/latency.json"),
        ("throughput --input wordless.jsonl --documents 2", "hold no word"),
        ("throughput --repeat 0", "--repeat"),
        ("ordering --rates 5 --seconds 1", "too few documents"),
        ("recovery --killed node,disk", "unknown victim 'disk'; choose one of node, all"),
    ],
)
def test_unmeasurable_arguments_are_a_usage_error(
    run: Run, tmp_path: Path, arguments: str, expected_text: str
) -> None:
    (tmp_path / "wordless.jsonl").write_text('{"id": 1, "text": "..."}')
    done = run(arguments)
    assert done.exit_code == 2
    assert expected_text in " ".join(done.output.split())
    assert not (tmp_path / "out" / "latency.png").exists()


def test_micro_batch_policy_without_spark_is_rejected_at_once(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def check_spark() -> None:
        raise Unavailable("Spark needs Java")

    monkeypatch.setattr("driftline.bench.options.check_spark", check_spark)
    assert isinstance(run("latency --policies none,micro-batch").exception, Unavailable)
    assert run("latency --policies none --help").exit_code == 0
