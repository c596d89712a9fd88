"""Comparison of policies with the floor, by latency or by throughput.

*Latency*, as in section VI of the paper "Delivery, consistency, and determinism": an open loop of
Poisson arrivals. Each round reverses the order of the previous round, so a steady drift of the
machine's speed affects all cases alike. All runs of a round have the same documents and due times.
*Throughput*: a closed loop that sends as much as the system's back-pressure admits. A document is
due when it is sent, so there is no latency to report. Each run has a new cluster.

A figure of a case is the median over its runs, but `max` is the maximum, and counts are sums. A row
is compared with the floor and with `none` (Driftline without guarantees), both with the same ends
as the row (see `systems.cases`). In the JSON, rows with durable ends are in an object `durable` of
the same form.

In every run each document has one output for each of its different words. These experiments kill
no process, so under every policy a lost or repeated output means that the measurement is broken.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from math import nan
from operator import sub
from pathlib import Path

from msgspec.structs import replace
from rich.console import Console

from driftline.bench.experiments.report import (
    COUNTS,
    P99_LATENCIES_MIN,
    Column,
    ComparisonColumn,
    ExperimentReport,
    FigureColumn,
    KeyColumn,
    Row,
    Spread,
    compare_figures,
    ratio,
    three_digits,
    to_json_number,
)
from driftline.bench.experiments.rounds import (
    Rounds,
    ScheduledRun,
    Setup,
    alternating_order,
    run_rounds,
)
from driftline.bench.measuring.corpus import expected_outputs
from driftline.bench.measuring.loops import System, closed_loop, open_loop, poisson_schedule
from driftline.bench.measuring.meter import RunMeter
from driftline.bench.systems.cases import BASELINE, Case
from driftline.deploy.roles.window import WINDOW_MAX
from driftline.engine.policy import POLICIES, Output

IN_FLIGHT_MAX = 4 * WINDOW_MAX
"""Maximum number of documents in flight. The front's window is smaller, so it is the real limit."""

COMMIT_IN_FLIGHT_MAX = 100_000
"""`IN_FLIGHT_MAX` for policies whose outputs wait for an epoch; several may be in flight."""

FLOOR_IN_FLIGHT_MAX = 512
"""`IN_FLIGHT_MAX` for the floor. It has no back-pressure: more would only lengthen its queues."""

MICRO_BATCH_DOCUMENTS_MAX = 600
"""Maximum number of documents of a micro-batch run: six full batches. More would take too long."""

CORRECT_NOTE = (
    "Checked: in every run each document had one output for each of its words, none lost and none "
    "twice. Nothing is killed here."
)
PROBLEM_ENDING = "though nothing was killed; do not use its figures"


def _signed(ms: float) -> str:
    return ("-" if ms < 0 else "+") + three_digits(abs(ms))


KEYS = (
    KeyColumn("policy", "policy"),
    KeyColumn("snapshot_interval_ms", "snapshots every", "{} ms".format),
    KeyColumn("durable", "durable", ", ".join, attribute="durable_parts"),
)
LATENCY = (
    FigureColumn("p50_ms", "p50", with_spread=True),
    FigureColumn("p75_ms", "p75"),
    FigureColumn("p95_ms", "p95"),
    FigureColumn("p99_ms", "p99", with_spread=True),
    FigureColumn("max_ms", "max", combine=max),
    FigureColumn("send_delay_p99_ms", "send delay p99"),
    FigureColumn("send_delay_max_ms", combine=max),
    FigureColumn("latencies", combine=sum),
    *COUNTS,
)
LATENCY_COMPARED = (
    ComparisonColumn("of_floor", "times the floor", three_digits),
    ComparisonColumn("of_none", f"times {BASELINE}", three_digits),
    ComparisonColumn("over_none_ms", f"over {BASELINE}, ms", _signed, separator=" to "),
)
THROUGHPUT = (
    FigureColumn("documents_per_s", "documents/s", "{:,.0f}".format, with_spread=True),
    FigureColumn("outputs_per_s", "outputs/s", "{:,.0f}".format),
    FigureColumn("cpu_cores", "cores", "{:.2f}".format),
    *COUNTS,
    ComparisonColumn("of_floor", "of the floor", "{:.0%}".format),
    ComparisonColumn("of_none", f"of {BASELINE}", "{:.0%}".format),
)


class Results(ExperimentReport[Case], frozen=True, kw_only=True):
    """Report of all cases; its JSON separates the floor and the durable ends from the rows.

    The settings are `rate` (None: closed loop), `documents` of each run, and `nodes`.
    """

    keys: Sequence[Column] = KEYS
    note_if_correct: str = CORRECT_NOTE
    problem_ending: str = PROBLEM_ENDING
    sync_ms: float = nan
    """Median time of a 4 KiB write and its fdatasync on this machine."""

    def as_json(self) -> dict[str, object]:
        """Return the figures as a JSON object."""
        durable = self._with_ends(durable=True)
        return {
            **self.settings,
            **self._with_ends(durable=False),
            "durable": (
                {"sync_ms": to_json_number(self.sync_ms), **durable} if durable["rows"] else None
            ),
        }

    def _with_ends(self, *, durable: bool) -> dict[str, object]:
        rows = [row for row in self.rows if row.case.durable is durable]
        floors = [self.row_as_json(row) for row in rows if row.case.is_floor]
        return {
            "floor": floors[0] if floors else None,
            "rows": [self.row_as_json(row) for row in rows if not row.case.is_floor],
        }


def measure_latency(
    setup: Setup,
    cases: Sequence[Case],
    rate: float,
    warmup: int,
    seed: int,
    rounds: int,
    console: Console,
) -> Rounds[RunMeter]:
    """Measure the latency of all cases, `rounds` times in turn."""
    expected = expected_outputs(setup.documents)

    def measure(system: System, run: ScheduledRun) -> tuple[RunMeter, str]:
        round_number, case = run
        schedule = poisson_schedule(len(setup.documents), rate, seed + round_number)
        meter = RunMeter(expected, warmup)
        figures = open_loop(system, meter, schedule, patience_s=patience_s(case))
        return meter, line_of(figures, rounds)

    return run_rounds(setup, alternating_order(cases, rounds), measure, console)


def line_of(figures: Mapping[str, float], rounds: int) -> str:
    """Return the console line of a run; with p99 if the rounds together have enough latencies."""
    if not figures["latencies"]:
        return "no document is complete"
    names = ["p50", *(["p99"] if rounds * figures["latencies"] >= P99_LATENCIES_MIN else []), "max"]
    return ", ".join(f"{name} {figures[f'{name}_ms']:.2f} ms" for name in names)


def latency_row(case: Case, meters: Sequence[RunMeter]) -> Row[Case]:
    """Return the row of a case; p99 figures are NaN if the runs together have too few latencies."""
    runs = [meter.latency_figures() for meter in meters]
    if sum(run["latencies"] for run in runs) < P99_LATENCIES_MIN:
        runs = [{**run, "p99_ms": nan, "send_delay_p99_ms": nan} for run in runs]
    samples = {
        "latency_ms": [ms for meter in meters for ms in meter.latencies_ms()],
        "send_delay_ms": [ms for meter in meters for ms in meter.send_delay_ms()],
    }
    return Row(case, runs, (case.is_floor, case.durable), samples)


def latencies_of(
    setup: Setup, cases: Sequence[Case], rate: float, rounds: Rounds[RunMeter], sync_ms: float = nan
) -> Results:
    """Return the latency report of all cases."""
    rows = [latency_row(case, rounds.results_of(case)) for case in cases]
    notes = [
        _medians_of(rows),
        "max: the largest latency of all runs. Latency counts from the time at which a document is "
        "due until its last output has arrived; send delay: the part of the latency before the "
        "producer sent the document.",
    ]
    small_counts = [n for row in rows if 0 < (n := row.total("latencies")) < P99_LATENCIES_MIN]
    if small_counts:
        notes.append(
            f"p99 needs {P99_LATENCIES_MIN:,} latencies in a row; here are {min(small_counts):,}: "
            "give more --documents or --repeat."
        )
    if any(case.durable for case in cases):
        notes.append(f"To append 4 KiB and wait for the disk takes {sync_ms:.2f} ms here.")
    tables: dict[str, Sequence[Column]] = {
        f"Latency in ms at {rate:g} documents a second, {setup.nodes} nodes": LATENCY,
        "Medians compared, round by round": LATENCY_COMPARED,
    }
    comparisons: dict[str, Compare] = {"of_floor": ratio, "of_none": ratio, "over_none_ms": sub}
    return Results(
        settings={"rate": rate, "documents": len(setup.documents), "nodes": setup.nodes},
        columns_by_title=tables,
        rows=_with_comparisons(rows, "p50_ms", comparisons),
        notes=notes,
        sync_ms=sync_ms,
    )


def measure_throughput(
    setup: Setup, cases: Sequence[Case], rounds: int, console: Console
) -> Rounds[dict[str, float]]:
    """Measure the throughput of all cases, `rounds` times in turn."""
    expected = expected_outputs(setup.documents)

    def measure(system: System, run: ScheduledRun) -> tuple[dict[str, float], str]:
        _, case = run
        meter = RunMeter(expected[:MICRO_BATCH_DOCUMENTS_MAX] if case.is_micro_batch else expected)
        figures = closed_loop(system, meter, in_flight_max(case), patience_s=patience_s(case))
        return figures, f"{figures['documents_per_s']:,.0f} documents/s"

    return run_rounds(setup, alternating_order(cases, rounds), measure, console)


def in_flight_max(case: Case) -> int:
    """Return the maximum number of documents in flight, high enough not to be the bottleneck."""
    if case.is_floor:
        return FLOOR_IN_FLIGHT_MAX
    if not case.is_micro_batch and POLICIES[case.policy].output is Output.COMMIT:
        return COMMIT_IN_FLIGHT_MAX
    return IN_FLIGHT_MAX


def throughputs_of(
    setup: Setup, cases: Sequence[Case], rounds: Rounds[dict[str, float]]
) -> Results:
    """Return the throughput report of all cases."""
    rows = [Row(case, rounds.results_of(case), (case.is_floor, case.durable)) for case in cases]
    return Results(
        settings={"rate": None, "documents": len(setup.documents), "nodes": setup.nodes},
        columns_by_title={f"Throughput, {setup.nodes} nodes": THROUGHPUT},
        rows=_with_comparisons(rows, "documents_per_s", {"of_floor": ratio, "of_none": ratio}),
        notes=[
            _medians_of(rows),
            "outputs: a document has one for each of its different words; cores: processor cores "
            "busy on average, with all processes, the producer and the consumer among them.",
        ],
    )


def _medians_of(rows: Sequence[Row[Case]]) -> str:
    runs = max((len(row.runs) for row in rows), default=0)
    return f"Medians of {runs} runs, with the least and the largest of them." if runs > 1 else ""


def patience_s(case: Case) -> float:
    """Return the seconds without an output after which a run ends early."""
    return 60.0 if case.is_micro_batch else 10.0


Compare = Callable[[float, float], float]


def _with_comparisons(
    rows: Sequence[Row[Case]], figure: str, compare_by_name: Mapping[str, Compare]
) -> list[Row[Case]]:
    """Return the rows, each with the comparisons of a figure by name.

    "of_floor" compares a row with the floor, any other name with `none`, both with the same ends.
    The floor itself has no comparisons.
    """
    floors = {row.case.durable: row for row in rows if row.case.is_floor}
    baselines = {row.case.durable: row for row in rows if row.case.policy == BASELINE}

    def comparisons(row: Row[Case]) -> dict[str, Spread]:
        spreads = {}
        for name, compare in compare_by_name.items():
            reference = (floors if name == "of_floor" else baselines).get(row.case.durable)
            if reference is not None and reference is not row and not row.case.is_floor:
                values = row.values(figure), reference.values(figure)
                spreads[name] = compare_figures(*values, compare)
        return spreads

    return [replace(row, comparisons=comparisons(row)) for row in rows]


def write_raw(directory: Path, runs: Sequence[tuple[Case, RunMeter]]) -> None:
    """Write a JSON line for each document of the latency runs, for other programs.

    Each run has a file, numbered in run order, such as `05-exactly-once-50ms.jsonl` or
    `09-exactly-once-50ms-durable.jsonl`. Times are rounded to a microsecond. The files are written
    after all runs, so writing is not measured.

        {"policy": "exactly-once", "snapshot_interval_ms": 50, "durable": false, "run": 5,
         "document": 700, "at_s": 14.07, "send_delay_ms": 0.01, "latency_ms": 2.13, "lost": 0,
         "duplicated": 0, "warmup": false}

    `at_s` is the due time of the document in seconds since the due time of the first one;
    `send_delay_ms` is the time from the due time until the document was sent, and `latency_ms` the
    time from the due time to the last output. `lost` and `duplicated` count outputs (words) of the
    document. If outputs are lost, or the document has no words, `latency_ms` is null.

    Precondition: the directory exists.
    """
    for run, (case, meter) in enumerate(runs, 1):
        interval = "" if case.snapshot_interval_ms is None else f"-{case.snapshot_interval_ms}ms"
        name = f"{run:02}-{case.policy}{interval}{'-durable' if case.durable else ''}.jsonl"
        with (directory / name).open("w") as file:
            for document in meter.documents():
                latency_ms = document.latency_ms
                record = {
                    "policy": case.policy,
                    "snapshot_interval_ms": case.snapshot_interval_ms,
                    "durable": case.durable,
                    "run": run,
                    **document._asdict(),
                    "at_s": round(document.at_s, 6),
                    "send_delay_ms": round(document.send_delay_ms, 3),
                    "latency_ms": None if latency_ms is None else round(latency_ms, 3),
                }
                file.write(json.dumps(record) + "\n")
