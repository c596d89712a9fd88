"""Results of benchmarks: medians of runs with their spread, comparisons, and failed runs."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import StringIO

from hypothesis import strategies as st
from rich.console import Console
from rich.table import Table

from driftline.bench.experiments.comparison import (
    CORRECT_NOTE,
    Results,
    latencies_of,
)
from driftline.bench.experiments.recovery import (
    Kill,
    RecoveryRow,
    report_of,
)
from driftline.bench.experiments.report import (
    NO_SPREAD,
    P99_LATENCIES_MIN,
    ExperimentReport,
    Row,
    Spread,
    compare_figures,
    ratio,
)
from driftline.bench.experiments.rounds import (
    Rounds,
    ScheduledRun,
    Setup,
    alternating_order,
    run_rounds,
)
from driftline.bench.experiments.service import Services
from driftline.bench.measuring.load import LoadParameters, Measurements
from driftline.bench.measuring.loops import System
from driftline.bench.measuring.meter import RunMeter
from driftline.bench.systems.cases import FLOOR, MICRO_BATCH, Case, cases
from tests.bench.echo import EchoSystem

PER_RUN = P99_LATENCIES_MIN // 3

figures = st.lists(st.floats(0.01, 1e6), min_size=1, max_size=7)


def test_rows_are_compared_by_medians_with_the_rounds_around_them() -> None:
    assert compare_figures([50.0, 180.0, 30.0], [100.0, 200.0, 50.0], ratio) == Spread(
        0.5, 0.5, 0.9
    )
    assert compare_figures([4.0, 9.0], [2.0, 3.0, 1000.0], ratio) == Spread(6.5 / 2.5, 2.0, 3.0)
    for nothing in (
        compare_figures([], [1.0], ratio),
        compare_figures([1.0], [0.0], ratio),
        NO_SPREAD,
    ):
        assert str(nothing) == ""
    assert str(Spread.of([1.0, math.nan, 2.0])) == "", "one run lacks the figure"
    assert str(Spread.of([9.996, 33.84, 497.4])) == "33.8 (10.0-497)"


def test_failed_run_is_named_by_its_row() -> None:
    case, right = Case("exactly-once", 50, durable=True), {"lost": 0, "duplicated": 0}
    rows = [Row(case, [right] * 3), Row(case, [right, {"lost": 5, "duplicated": 1}, right])]
    report = Results(settings={}, columns_by_title={}, rows=rows, problem_ending="indeed")
    assert report.problems() == [
        "exactly-once, snapshot every 50 ms, durable ends: 5 outputs are lost and 1 came twice, "
        "indeed"
    ]


def latencies(
    runs: dict[Case, Sequence[float]], *, count: int = PER_RUN, lost: Case | None = None
) -> Results:
    """Return results of runs whose latencies range from almost 0 to twice the given median."""
    made = []
    for case, medians in runs.items():
        for median_ms in medians:
            meter = RunMeter([1] * count + [7] * (case == lost))
            for number in range(len(meter.expected)):
                meter.record_sent(number, now=0.00001, due=0.0)
            for number in range(count):
                meter.record_arrival(number, ["a"], 0.002 * median_ms * (number + 1) / count)
            made.append((case, meter))
    return latencies_of(Setup([], 2), list(runs), 100, Rounds(made), 1.25)


RUNS: dict[Case, Sequence[float]] = {
    Case(FLOOR, None): (1.0, 1.2, 0.8),
    Case("none", None): (1.5, 1.8, 1.6),
    Case("exactly-once", 50): (1.7, 1.5, 8.8),
    Case("two-phase", 1000): (500.0, 480.0, 520.0),
    Case(FLOOR, None, True): (4.0, 5.0, 6.0),
    Case("exactly-once", 1000, True): (6.0, 5.0, 7.0),
}


def rendered(tables: list[Table]) -> list[str]:
    out = StringIO()
    Console(file=out, width=140).print(*tables, sep="\n")
    return [" ".join(line.split()) for line in out.getvalue().splitlines() if line.strip()]


def test_latency_json_has_rows_runs_and_ratios() -> None:
    written = json.loads(json.dumps(latencies(RUNS).as_json(), allow_nan=False))
    assert list(written) == ["rate", "documents", "nodes", "floor", "rows", "durable"]
    row = written["rows"][1]
    runs = row.pop("runs")
    assert row == {
        "policy": "exactly-once", "snapshot_interval_ms": 50, "durable": ["state"],
        "p50_ms": 1.7, "p75_ms": 2.55, "p95_ms": 3.23, "p99_ms": 3.366, "max_ms": 17.6,
        "send_delay_p99_ms": 0.01, "send_delay_max_ms": 0.01, "latencies": P99_LATENCIES_MIN,
        "lost": 0, "duplicated": 0,
        "of_floor": [1.7, 1.25, 11.0], "of_none": [1.062, 0.833, 5.5],
        "over_none_ms": [0.1, -0.3, 7.2],
    }  # fmt: skip
    assert [run["p50_ms"] for run in runs] == [1.7, 1.5, 8.8]
    assert (written["floor"]["p50_ms"], written["floor"]["durable"]) == (1.0, [])
    durable = written["durable"]
    assert durable["sync_ms"] == 1.25
    assert durable["floor"]["durable"] == ["inputs", "outputs"]
    assert [(row["policy"], row["durable"], row["of_floor"]) for row in durable["rows"]] == [
        ("exactly-once", ["inputs", "state", "outputs"], [1.2, 1.0, 1.5])
    ]


def test_the_tables_of_latencies_compare_rows_with_the_same_ends() -> None:
    lines = rendered(latencies(RUNS).tables())
    assert lines[0] == "Latency in ms at 100 documents a second, 2 nodes"
    assert lines[3:9] == [
        "floor 1.00 (0.80-1.20) 1.50 1.90 1.98 (1.58-2.38) 2.40 0.01",
        "none 1.60 (1.50-1.80) 2.40 3.04 3.17 (2.97-3.56) 3.60 0.01",
        "exactly-once 50 ms state 1.70 (1.50-8.80) 2.55 3.23 3.37 (2.97-17.4) 17.6 0.01",
        "two-phase 1000 ms state 500 (480-520) 750 950 990 (950-1030) 1040 0.01",
        "floor inputs, outputs 5.00 (4.00-6.00) 7.50 9.50 9.90 (7.92-11.9) 12.0 0.01",
        "exactly-once 1000 ms inputs, state, outputs 6.00 (5.00-7.00) 9.00 11.4 11.9 (9.90-13.9) "
        "14.0 0.01",
    ]
    begin = lines.index("Medians compared, round by round") + 3
    assert lines[begin : begin + 6] == [
        "floor",
        "none 1.60 (1.50-2.00)",
        "exactly-once 50 ms state 1.70 (1.25-11.0) 1.06 (0.83-5.50) +0.10 (-0.30 to +7.20)",
        "two-phase 1000 ms state 500 (400-650) 312 (267-333) +498 (+478 to +518)",
        "floor inputs, outputs",
        "exactly-once 1000 ms inputs, state, outputs 1.20 (1.00-1.50)",
    ]
    notes = " ".join(lines[begin + 6 :])
    for note in (
        "Medians of 3 runs, with the least and the largest of them.",
        "max: the largest latency of all runs.",
        "To append 4 KiB and wait for the disk takes 1.25 ms here.",
        CORRECT_NOTE,
    ):
        assert note in notes


def test_a_row_with_too_few_latencies_has_no_99th_percentile() -> None:
    results = latencies({Case(FLOOR, None): (1.0, 1.0)})
    lines = rendered(results.tables())
    assert lines[3] == "floor 1.00 1.50 1.90 2.00"
    assert "p99 needs 1,500 latencies in a row; here are 1,000" in " ".join(lines)
    written = json.dumps(results.as_json()["floor"])
    assert written.count('"p99_ms": null') == written.count('"send_delay_p99_ms": null') == 3
    assert '"p50_ms": null' in json.dumps(latencies({Case(FLOOR, None): [1.0]}, count=0).as_json())


BASE, NONE, OTHER = Case(FLOOR, None), Case("none", None), Case("exactly-once", 50)


class EchoFactory(Setup, frozen=True):
    """System factory whose systems answer at once."""

    started: list[Case]

    @contextmanager
    def start(self, case: Case) -> Iterator[System]:
        self.started.append(case)
        yield EchoSystem([["a"]])


def measured(system: System, turn: ScheduledRun) -> tuple[int, str]:
    number, _ = turn
    return number, f"round {number}"


def test_every_turn_has_a_line_and_a_result() -> None:
    setup = EchoFactory([("d", "a")], 1, started=[])
    out = StringIO()
    turns = alternating_order([BASE, OTHER], 2)
    rounds = run_rounds(setup, turns, measured, Console(file=out, width=100))
    assert setup.started == [BASE, OTHER, OTHER, BASE]
    assert rounds.runs == [(BASE, 0), (OTHER, 0), (OTHER, 1), (BASE, 1)]
    assert rounds.results_of(OTHER) == [0, 1]
    assert [line.strip() for line in out.getvalue().splitlines()] == [
        "1 of 4  floor: round 0",
        "2 of 4  exactly-once, snapshot every 50 ms: round 0",
        "3 of 4  exactly-once, snapshot every 50 ms: round 1",
        "4 of 4  floor: round 1",
    ]


def test_policies_without_an_interval_run_once() -> None:
    assert cases(["exactly-once", "strong-productions", "none", "two-phase"], [50, 500]) == [
        Case(FLOOR, None),
        Case("strong-productions", None),
        Case("none", None),
        Case("exactly-once", 50),
        Case("two-phase", 50),
        Case("exactly-once", 500),
        Case("two-phase", 500),
    ]


def test_durable_rows_repeat_the_policies_with_their_own_floor() -> None:
    rows = cases(["none", "exactly-once", MICRO_BATCH], [50, 500], durable_interval_ms=500)
    assert [row for row in rows if row.durable] == [
        Case(FLOOR, None, durable=True),
        Case("none", None, durable=True),
        Case("exactly-once", 500, durable=True),
    ]


WANTED = LoadParameters(documents=10, documents_per_s=50, queries_per_s=50, seconds=30.0)


def observed(late_ms: float = 0.1, **others: float) -> Measurements:
    return Measurements(
        fill_per_s=100.0,
        freshness_ms=[1.0, 2.0],
        acknowledged_ms=[0.5, 1.5],
        queries={"term": [0.1, 0.3]},
        send_delay_ms=[late_ms],
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
    peers_in_json = services.as_json()["peers"]
    assert isinstance(peers_in_json, dict)
    assert peers_in_json["none"] == {"skipped": "not installed"}


def recovery_row(killed: str, *firsts: float, lost: int = 0) -> RecoveryRow:
    points = [(-0.5, 3.0), (0.0, 80.0), (0.5, 4.0), (9.0, 4.0)]
    runs = [
        {
            "first_output_ms": ms,
            "detection_ms": ms / 10,
            "restart_ms": ms / 2,
            "restore_ms": ms / 4,
            "replay_ms": ms / 8,
            "lost": lost,
            "duplicated": 0,
        }
        for ms in firsts
    ]
    return Row(Kill(killed), runs, samples={"latencies": points * len(runs)})


def text_of_recoveries(recoveries: ExperimentReport[Kill]) -> str:
    console = Console(file=StringIO(), width=140)
    console.print(*recoveries.tables())
    assert isinstance(console.file, StringIO)
    return " ".join(console.file.getvalue().split())


def test_a_row_has_the_medians_of_its_trials_and_the_longest() -> None:
    recoveries = report_of([recovery_row("node", 80.0, 400.0, 120.0)], 50.0, 1000)
    written = json.loads(json.dumps(recoveries.as_json()))
    assert (written["rate"], written["snapshot_interval_ms"]) == (50, 1000)
    [found] = written["rows"]
    runs = found.pop("runs")
    assert found == {
        "killed": "node", "first_output_ms": 120, "first_output_max_ms": 400,
        "detection_ms": 12, "restart_ms": 60, "restore_ms": 30, "replay_ms": 15,
        "lost": 0, "duplicated": 0,
    }  # fmt: skip
    assert [run["first_output_ms"] for run in runs] == [80, 400, 120]
    assert "node 120 400 12.0 60.0 30.0 15.0" in text_of_recoveries(recoveries)


def test_lost_output_of_a_recovery_is_reported_as_a_problem() -> None:
    right, wrong = recovery_row("node", 80.0), recovery_row("all", 90.0, lost=2)
    assert report_of([right], 50, 1000).problems() == []
    both = report_of([right, wrong], 50, 1000)
    assert [text[:35] for text in both.problems()] == ["all: 2 outputs are lost and 0 came "]
    assert "no output was lost" in text_of_recoveries(report_of([right], 50, 1000))
    assert "no output was lost" not in text_of_recoveries(both)
