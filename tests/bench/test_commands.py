"""The commands of the benchmark: their JSON has one form, and what cannot be is said at once."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from driftline.bench.cases import Case, broken_promises, cases
from driftline.bench.commands import bench
from driftline.bench.latency import pooled, runs_of
from driftline.bench.meter import Meter, ThroughputResult
from driftline.bench.microbatch import Refused
from driftline.bench.options import CHOICES, MICRO_BATCH, REAL_TIME
from driftline.bench.profile import STEPS
from driftline.bench.report import LatencyRow
from driftline.bench.throughput import UNDER_WAY, median_of, under_way
from driftline.deploy.parties.front import WINDOW
from driftline.engine.errors import Unavailable
from driftline.engine.policy import POLICIES

Run = Callable[..., Result]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run `driftline bench ...` in a directory of its own; arguments are given as one text."""
    monkeypatch.chdir(tmp_path)

    def run(arguments: str) -> Result:
        return CliRunner().invoke(bench, arguments.split())

    return run


def test_latency_writes_table_json_and_picture(run: Run, tmp_path: Path) -> None:
    done = run(
        "latency --documents 60 --warmup 10 --rate 100 --policies none,exactly-once "
        "--checkpoints 100 --json results/latency.json"
    )
    assert done.exit_code == 0, done.output
    written = json.loads((tmp_path / "results" / "latency.json").read_text())
    assert list(written) == ["rate", "documents", "nodes", "floor", "rows"]
    assert (written["rate"], written["documents"], written["nodes"]) == (100, 60, 2)
    percentiles = ["p50_ms", "p75_ms", "p95_ms", "p99_ms", "max_ms"]
    assert list(written["floor"]) == percentiles
    assert [(row["policy"], row["checkpoint_ms"]) for row in written["rows"]] == [
        ("none", None),
        ("exactly-once", 100),
    ]
    for row in written["rows"]:
        assert list(row) == ["policy", "checkpoint_ms", *percentiles, "lost", "duplicated"]
        assert 0 < row["p50_ms"] <= row["max_ms"]
        assert (row["lost"], row["duplicated"]) == (0, 0)
    assert "exactly-once" in done.output
    assert "picture: out/latency.png" in done.output
    assert (tmp_path / "out" / "latency.png").read_bytes().startswith(b"\x89PNG")


def test_throughput_compares_every_round_with_the_floor(run: Run, tmp_path: Path) -> None:
    done = run("throughput --documents 60 --repeat 1 --policies exactly-once --json t.json")
    assert done.exit_code == 0, done.output
    written = json.loads((tmp_path / "t.json").read_text())
    figures = ["documents_per_s", "records_per_s", "cpu_cores"]
    assert list(written["floor"]) == figures
    (row,) = written["rows"]
    assert list(row) == ["policy", "checkpoint_ms", *figures, "lost", "duplicated"]
    assert (row["policy"], row["checkpoint_ms"]) == ("exactly-once", 1000)
    assert (row["lost"], row["duplicated"]) == (0, 0)
    assert "over 1 rounds" in done.output


def test_ordering_runs_both_orderings(run: Run, tmp_path: Path) -> None:
    done = run("ordering --nodes 2 --rates 100 --seconds 0.4 --saturated 40 --json o.json")
    assert done.exit_code == 0, done.output
    rows = json.loads((tmp_path / "o.json").read_text())["rows"]
    assert [(row["ordering"], row["rate"]) for row in rows] == [
        ("speculative", 100),
        ("buffered", 100),
        ("speculative", None),
        ("buffered", None),
    ]
    assert all(row["frames_per_document"] > 0 for row in rows)
    assert all(
        row["late"] == row["reapplied"] == 0 for row in rows if row["ordering"] != "speculative"
    )
    assert (tmp_path / "out" / "ordering.png").exists()


def test_floor_writes_both_of_its_figures(run: Run, tmp_path: Path) -> None:
    done = run("floor --documents 30 --warmup 5 --rate 200 --saturated 40 --json floor.json")
    assert done.exit_code == 0, done.output
    written = json.loads((tmp_path / "floor.json").read_text())
    assert written["latency"]["floor"]["p50_ms"] > 0
    assert written["throughput"]["floor"]["documents_per_s"] > 0


@pytest.mark.parametrize("policy", list(POLICIES))
def test_profile_tells_every_step(run: Run, tmp_path: Path, policy: str) -> None:
    done = run(f"profile --policy {policy} --documents 60 --snapshot-every 30 --json p.json")
    assert done.exit_code == 0, done.output
    assert all(step in done.output for step in STEPS)
    written = json.loads((tmp_path / "p.json").read_text())
    cost = {row["step"]: row["document_us"] for row in written["rows"]}
    assert list(cost) == list(STEPS)
    assert cost["keyed and hold"] > 0
    assert cost["consumer decode"] > 0, "whatever the policy, outputs have arrived"
    assert (cost["snapshot capture"] > 0) is (policy != "none")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("latency --policies none,perhaps", "unknown policy 'perhaps'; there are none, "),
        ("latency --documents 200", "200 documents leave nothing to measure"),
        ("latency --rate 0", "--rate"),
        ("latency --checkpoints 50,often", "'50,often' is not a list of whole numbers"),
        ("latency --checkpoints 0", "whole numbers from 1 on"),
        ("latency --input nowhere.jsonl", "'nowhere.jsonl' does not exist"),
        ("latency --plot latency.doc", "must end in one of .png"),
        ("latency --json /dev/null/latency.json", "cannot write /dev/null/latency.json"),
        ("throughput --input wordless.jsonl --documents 2", "hold no word"),
        ("throughput --repeat 0", "--repeat"),
        ("ordering --rates 5 --seconds 1", "too few documents"),
        ("floor --documents 3 --warmup 3", "nothing to measure"),
        ("profile --policy perhaps", "--policy"),
    ],
)
def test_what_cannot_be_measured_is_a_usage_error(
    run: Run, tmp_path: Path, arguments: str, said: str
) -> None:
    (tmp_path / "wordless.jsonl").write_text('{"id": 1, "text": "..."}')
    done = run(arguments)
    assert done.exit_code == 2
    assert said in " ".join(done.output.split())
    assert not (tmp_path / "out" / "latency.png").exists()


@pytest.mark.parametrize("what", ["latency --warmup 5 --repeat 2", "throughput --repeat 2"])
def test_what_spark_refuses_is_a_row_with_its_reason(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    class Refusing:
        def __init__(self, *_: object, real_time: bool) -> None:
            self.why = "no such trigger" if real_time else "no Java"

        def __enter__(self) -> None:
            raise Refused(self.why)

        def __exit__(self, *_: object) -> None: ...

    monkeypatch.setattr("driftline.bench.cases.MicroBatch", Refusing)
    monkeypatch.setattr("driftline.bench.options.check_spark", lambda: None)
    done = run(f"{what} --documents 30 --policies none,micro-batch --json r.json")
    assert done.exit_code == 0, done.output
    rows = json.loads((tmp_path / "r.json").read_text())["rows"]
    assert [(row["policy"], row["checkpoint_ms"], row.get("reason")) for row in rows] == [
        ("none", None, None),
        (MICRO_BATCH, None, "no Java"),
        (REAL_TIME, None, "no such trigger"),
    ]
    assert "reason" not in rows[0], "a row that was measured has the keys that it always had"
    assert set(rows[0]) < set(rows[1])
    assert "micro-batch, real-time: no such trigger" in done.output


def test_who_asks_for_micro_batches_is_told_at_once_that_there_is_no_spark(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def check_spark() -> None:
        raise Unavailable("Spark needs Java")

    monkeypatch.setattr("driftline.bench.options.check_spark", check_spark)
    assert isinstance(run("latency --policies none,micro-batch").exception, Unavailable)
    assert run("latency --policies none --help").exit_code == 0


def test_micro_batches_run_once_and_last() -> None:
    rows = cases(CHOICES, [50, 500])
    assert [row.policy for row in rows[-2:]] == [MICRO_BATCH, REAL_TIME]
    assert [row.micro_batch for row in rows].count(True) == 2
    assert {row.policy for row in rows} == {*POLICIES, MICRO_BATCH, REAL_TIME}


def test_policies_without_an_interval_run_once() -> None:
    assert cases(["exactly-once", "strong-productions", "none", "two-phase"], [50, 500]) == [
        Case("strong-productions", None),
        Case("none", None),
        Case("exactly-once", 50),
        Case("two-phase", 50),
        Case("exactly-once", 500),
        Case("two-phase", 500),
    ]


def test_every_round_is_in_the_opposite_order_of_the_one_before() -> None:
    none, other = Case("none", None), Case("exactly-once", 50)
    assert runs_of([none, other], 1) == [(0, None), (0, none), (0, other)]
    rounds = [[case for number, case in runs_of([none, other], 3) if number == i] for i in range(3)]
    assert rounds == [[None, none, other], [other, none, None], [None, none, other]]


def test_pooled_runs_are_one_run() -> None:
    meters = [Meter([1, 1]), Meter([1, 1])]
    for meter, seconds in zip(meters, (0.001, 0.003), strict=True):
        for number in range(2):
            meter.handed_over(number, now=0.0, due=0.0)
        meter.arrived(0, ["a"], now=seconds)
    result = pooled(meters)
    assert (result.documents, result.lost, result.duplicated) == (2, 2, 0)
    assert (result.latency["p50_ms"], result.latency["max_ms"]) == (1.0, 3.0)


def test_the_median_of_rounds_keeps_count_of_every_loss() -> None:
    rounds = [ThroughputResult(rate, 100 * rate, 1.0, 1, 0) for rate in (30.0, 10.0, 20.0)]
    assert median_of(rounds) == ThroughputResult(20.0, 2000.0, 1.0, 3, 0)


def test_the_meter_lets_more_under_way_than_the_front() -> None:
    assert all(under_way(Case(name, None)) >= UNDER_WAY > WINDOW for name in POLICIES)
    assert under_way(Case("two-phase", 1000)) > 10 * UNDER_WAY, "whole epochs are under way"


@pytest.mark.parametrize(
    ("policy", "broken"),
    [
        ("none", 0),
        ("at-least-once", 1),
        ("exactly-once", 2),
        ("two-phase", 2),
        ("strong-productions", 2),
        (MICRO_BATCH, 2),
    ],
)
def test_a_broken_promise_is_one_that_was_given(policy: str, broken: int) -> None:
    row = LatencyRow(policy, None, 1.0, 1.0, 1.0, 1.0, 1.0, lost=1, duplicated=1)
    assert len(broken_promises([row])) == broken
