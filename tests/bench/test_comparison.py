"""Comparisons: medians of runs with their spread, compared with what has the same ends."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from io import StringIO
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

from driftline.bench.experiments import pictures
from driftline.bench.experiments.comparison import (
    IF_RIGHT,
    UNDER_WAY,
    Results,
    latencies_of,
    line_of,
    throughputs_of,
    under_way,
)
from driftline.bench.experiments.pictures import draw_latency, draw_throughput
from driftline.bench.experiments.report import (
    NO_SPREAD,
    P99_LATENCIES_MIN,
    Row,
    Spread,
    compare_rows,
    ratio,
)
from driftline.bench.experiments.rounds import Rounds, Setup
from driftline.bench.measuring.meter import RunMeter
from driftline.bench.systems.cases import CHOICES, FLOOR, Case
from driftline.deploy.roles.window import WINDOW
from driftline.engine.policy import POLICIES
from driftline.engine.ui.pictures import colour_of_policy

PER_RUN = P99_LATENCIES_MIN // 3

figures = st.lists(st.floats(0.01, 1e6), min_size=1, max_size=7)


def test_rows_are_compared_by_medians_with_the_rounds_around_them() -> None:
    assert compare_rows([50.0, 180.0, 30.0], [100.0, 200.0, 50.0], ratio) == Spread(0.5, 0.5, 0.9)
    assert compare_rows([4.0, 9.0], [2.0, 3.0, 1000.0], ratio) == Spread(6.5 / 2.5, 2.0, 3.0)
    for nothing in (compare_rows([], [1.0], ratio), compare_rows([1.0], [0.0], ratio), NO_SPREAD):
        assert str(nothing) == ""
    assert str(Spread.of([1.0, math.nan, 2.0])) == "", "a run lacks the figure"
    assert str(Spread.of([9.996, 33.84, 497.4])) == "33.8 (10.0-497)"


@given(figures, figures)
def test_the_ratio_of_medians_is_within_those_of_the_rounds(a: list[float], b: list[float]) -> None:
    found = compare_rows(a, b, ratio)
    assert found.least * (1 - 1e-9) <= found.median <= found.most * (1 + 1e-9)


def test_a_wrong_run_is_named_by_its_row() -> None:
    case, right = Case("exactly-once", 50, durable=True), {"lost": 0, "duplicated": 0}
    rows = [Row(case, [right] * 3), Row(case, [right, {"lost": 5, "duplicated": 1}, right])]
    report = Results(settings={}, columns_by_title={}, rows=rows, if_wrong="indeed")
    assert report.problems() == [
        "exactly-once, checkpoint every 50 ms, durable ends: 5 outputs are lost and 1 came twice, "
        "indeed"
    ]


def latencies(
    runs: dict[Case, Sequence[float]], *, count: int = PER_RUN, lost: Case | None = None
) -> Results:
    """The results of runs with latencies from almost 0 to twice the median, which is given."""
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


def shown(tables: list[Table]) -> list[str]:
    out = StringIO()
    Console(file=out, width=140).print(*tables, sep="\n")
    return [" ".join(line.split()) for line in out.getvalue().splitlines() if line.strip()]


def test_latency_json_has_rows_runs_and_ratios() -> None:
    written = json.loads(json.dumps(latencies(RUNS).as_json(), allow_nan=False))
    assert list(written) == ["rate", "documents", "nodes", "floor", "rows", "durable"]
    row = written["rows"][1]
    runs = row.pop("runs")
    assert row == {
        "policy": "exactly-once", "checkpoint_ms": 50, "durable": ["state"],
        "p50_ms": 1.7, "p75_ms": 2.55, "p95_ms": 3.23, "p99_ms": 3.366, "max_ms": 17.6,
        "late_p99_ms": 0.01, "late_max_ms": 0.01, "latencies": P99_LATENCIES_MIN,
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
    lines = shown(latencies(RUNS).tables())
    assert lines[0] == "Latency in ms at 100 documents a second, 2 nodes"
    assert lines[3:9] == [
        "floor 1.00 (0.80-1.20) 1.50 1.90 1.98 (1.58-2.38) 2.40 0.01",
        "none 1.60 (1.50-1.80) 2.40 3.04 3.17 (2.97-3.56) 3.60 0.01",
        "exactly-once 50 state 1.70 (1.50-8.80) 2.55 3.23 3.37 (2.97-17.4) 17.6 0.01",
        "two-phase 1000 state 500 (480-520) 750 950 990 (950-1030) 1040 0.01",
        "floor inputs, outputs 5.00 (4.00-6.00) 7.50 9.50 9.90 (7.92-11.9) 12.0 0.01",
        "exactly-once 1000 inputs, state, outputs 6.00 (5.00-7.00) 9.00 11.4 11.9 (9.90-13.9) "
        "14.0 0.01",
    ]
    begin = lines.index("Medians compared, round by round") + 3
    assert lines[begin : begin + 6] == [
        "floor",
        "none 1.60 (1.50-2.00)",
        "exactly-once 50 state 1.70 (1.25-11.0) 1.06 (0.83-5.50) +0.10 (-0.30 to +7.20)",
        "two-phase 1000 state 500 (400-650) 312 (267-333) +498 (+478 to +518)",
        "floor inputs, outputs",
        "exactly-once 1000 inputs, state, outputs 1.20 (1.00-1.50)",
    ]
    notes = " ".join(lines[begin + 6 :])
    for note in (
        "Medians of 3 runs, with the least and the largest of them.",
        "max: the largest latency of all runs.",
        "To append 4 KiB and wait for the disk takes 1.25 ms here.",
        IF_RIGHT,
    ):
        assert note in notes


def test_lost_output_is_reported_as_a_problem() -> None:
    case = Case("two-phase", 1000)
    results = latencies({case: [3.0]}, lost=case)
    assert [problem[:62] for problem in results.problems()] == [
        "two-phase, checkpoint every 1000 ms: 7 outputs are lost and 0 "
    ]
    assert "none lost" not in " ".join(shown(results.tables()))


def test_a_row_with_too_few_latencies_has_no_99th_percentile() -> None:
    results = latencies({Case(FLOOR, None): (1.0, 1.0)})
    lines = shown(results.tables())
    assert lines[3] == "floor 1.00 1.50 1.90 2.00"
    assert "p99 needs 1,500 latencies in a row; here are 1,000" in " ".join(lines)
    written = json.dumps(results.as_json()["floor"])
    assert written.count('"p99_ms": null') == written.count('"late_p99_ms": null') == 3
    assert '"p50_ms": null' in json.dumps(latencies({Case(FLOOR, None): [1.0]}, count=0).as_json())


def test_progress_line_shows_p99_only_if_the_row_will_have_one() -> None:
    run = {"p50_ms": 1.0, "p99_ms": 1.5, "max_ms": 2.0}
    assert line_of({**run, "latencies": 300}, 1) == "p50 1.00 ms, max 2.00 ms"
    line = line_of({**run, "latencies": PER_RUN}, 3)
    assert line == "p50 1.00 ms, p99 1.50 ms, max 2.00 ms"
    assert line_of({**run, "latencies": 0}, 3) == "no document is complete"


def throughputs(runs: dict[Case, Sequence[float]]) -> Results:
    made = [
        (
            case,
            {
                "documents_per_s": rate,
                "outputs_per_s": 125 * rate,
                "cpu_cores": 1.9,
                "lost": 0,
                "duplicated": 0,
            },
        )
        for case, rates in runs.items()
        for rate in rates
    ]
    return throughputs_of(Setup([], 2), list(runs), Rounds(made))


def test_throughputs_are_compared_round_by_round() -> None:
    results = throughputs(
        {
            Case(FLOOR, None): (100.0, 200.0, 50.0),
            Case("none", None): (50.0, 180.0, 30.0),
            Case("exactly-once", 500): (25.0, 90.0, 30.0),
        }
    )
    written = json.loads(json.dumps(results.as_json(), allow_nan=False))
    assert (written["rate"], written["durable"]) == (None, None)
    row = written["rows"][1]
    assert [run["documents_per_s"] for run in row.pop("runs")] == [25.0, 90.0, 30.0]
    assert row == {
        "policy": "exactly-once", "checkpoint_ms": 500, "durable": ["state"],
        "documents_per_s": 30.0, "outputs_per_s": 3750.0, "cpu_cores": 1.9,
        "lost": 0, "duplicated": 0, "of_floor": [0.3, 0.25, 0.6], "of_none": [0.6, 0.5, 1.0],
    }  # fmt: skip
    assert shown(results.tables())[3:6] == [
        "floor 100 (50-200) 12,500 1.90",
        "none 50 (30-180) 6,250 1.90 50% (50%-90%)",
        "exactly-once 500 state 30 (25-90) 3,750 1.90 30% (25%-60%) 60% (50%-100%)",
    ]


def test_meter_limit_exceeds_the_window_of_the_front() -> None:
    assert all(under_way(Case(name, None)) >= UNDER_WAY > WINDOW for name in POLICIES)
    assert under_way(Case("two-phase", 1000)) > 10 * UNDER_WAY, "whole epochs are under way"


def test_the_pictures_are_written(tmp_path: Path) -> None:
    draw_latency(latencies(RUNS), tmp_path / "latency.png")
    draw_latency(latencies({Case(FLOOR, None): ()}), tmp_path / "nothing.png")
    draw_throughput(throughputs({Case(FLOOR, None): [3.0]}), tmp_path / "throughput.png")
    assert len(list(tmp_path.iterdir())) == 3
    for path in tmp_path.iterdir():
        assert path.read_bytes().startswith(b"\x89PNG")


def test_a_policy_has_the_same_colour_in_every_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Figure] = []
    monkeypatch.setattr(pictures, "save", lambda figure, path: drawn.append(figure))
    every = [FLOOR, *CHOICES]
    wanted = {name: colour_of_policy(name) for name in every}
    assert len(set(wanted.values())) == len(every)
    for names in (every, ["exactly-once", FLOOR]):
        runs: dict[Case, Sequence[float]] = {Case(name, None): [1.0] for name in names}
        draw_throughput(throughputs(runs), Path("bars.png"))
        draw_latency(latencies(runs, count=3), Path("curves.png"))
        curves, bars = drawn.pop(), drawn.pop()
        (panel,), (legend,) = bars.axes, curves.legends
        coloured = zip(names, panel.patches, strict=True)
        lines = zip(legend.get_texts(), legend.get_lines(), strict=True)
        assert (
            {name: to_hex(bar.get_facecolor()).upper() for name, bar in coloured}
            == {text.get_text(): to_hex(line.get_color()).upper() for text, line in lines}
            == {name: wanted[name] for name in names}
        )
