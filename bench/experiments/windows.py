"""Benchmark of windows: throughput, compared with a hand-written scan and a bare loop, and latency.

*Throughput*: three systems process the same file of records as fast as possible. Each round
reverses the order of the systems.

- `tumbling`: a `Sum` in windows of one minute, with a row per key and minute;
- `scan`: a function with a state that makes the same sums, with an output per record;
- `bare loop`: as many processes as nodes in plain Python, without an engine (`systems.bare_loop`).

*Latency*: a flow with a plain scan and with windows gets records at even intervals, in the order of
their event times. An output of the scan has the label of its record; a row of a window has the
label of the record that ends the window. Latency counts from the time at which the record with this
label is due until the output arrives at the consumer.
"""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from operator import sub
from os import getloadavg
from pathlib import Path
from time import perf_counter
from typing import Any

from msgspec import Struct
from msgspec.structs import replace
from rich.console import Console
from rich.table import Table

from driftline.bench.experiments.report import (
    COUNTS,
    Column,
    ComparisonColumn,
    ExperimentReport,
    FigureColumn,
    KeyColumn,
    Row,
    compare_figures,
    ratio,
)
from driftline.bench.experiments.rounds import RunLines
from driftline.bench.measuring.loops import cpu_seconds, steady_schedule, without_gc_pauses
from driftline.bench.measuring.meter import percentiles
from driftline.bench.systems.bare_loop import Sums, run_loop
from driftline.bench.systems.bundle_engine import BundleEngine
from driftline.bench.systems.window_flows import KEYS, minute_of, sales, sums_of
from driftline.connectors.files import open_source
from driftline.engine.sources import QueueSource
from driftline.engine.wire.bundles import Item

FLOWS = "driftline.bench.systems.window_flows"
SYSTEMS = TUMBLING, SCAN, LOOP = "tumbling", "scan", "bare loop"
OUTPUTS = PLAIN, ROWS = "plain scan", "rows of windows"
"""Outputs of a latency run; the index is the number of the sink."""

PATIENCE_S = 30.0
"""A run ends early if no output arrives for this long."""

WARMUP_DIVISOR = 5
"""The first records of a latency run are its warm-up: their number divided by this."""

KEYS_OF_LATENCY, RECORDS_PER_S = 5, 10
"""Number of keys in a latency run, and number of its records per second of event time. A window is
one second of event time."""

THROUGHPUT = (
    FigureColumn("records_per_s", "records/s", "{:,.0f}".format, with_spread=True),
    FigureColumn("cpu_cores", "cores", "{:.2f}".format),
    FigureColumn("cpu_us", "CPU us per record", "{:,.0f}".format, with_spread=True),
    *COUNTS,
    ComparisonColumn("of_scan", "of the scan", "{:.0%}".format),
    ComparisonColumn("of_loop", "of the bare loop", "{:.1%}".format),
)
LATENCY = (
    FigureColumn("p50_ms", "p50", with_spread=True),
    FigureColumn("p95_ms", "p95"),
    FigureColumn("max_ms", "max", combine=max),
    FigureColumn("latencies", combine=sum),
    *COUNTS,
    ComparisonColumn("over_scan_ms", "p50 over the scan", "{:+.2f}".format, separator=" to "),
)

Run = Mapping[str, float]


class WindowsCase(Struct, frozen=True):
    """Case of a row: a system, or an output of the latency runs."""

    name: str

    def __str__(self) -> str:
        return self.name


class WindowsReport(Struct, frozen=True):
    """Reports of throughput and latency."""

    throughput: ExperimentReport[WindowsCase]
    latency: ExperimentReport[WindowsCase]
    loads: Sequence[float]
    """Load average of the machine after each round."""

    def as_json(self) -> dict[str, object]:
        """Return the figures as a JSON object."""
        parts = {"throughput": self.throughput.as_json(), "latency": self.latency.as_json()}
        return {"loads": self.loads, **parts}

    def tables(self) -> list[Table]:
        """Return the figures for a terminal."""
        return [*self.throughput.tables(), *self.latency.tables()]

    def problems(self) -> list[str]:
        """Return a sentence for each row with a lost or repeated output."""
        return [*self.throughput.problems(), *self.latency.problems()]


def measure_windows(
    records: int, rounds: int, nodes: int, rate: float, seconds: float, console: Console
) -> WindowsReport:
    """Run everything in turn, `rounds` times.

    `records`: number of records of a throughput run; `rate`, `seconds`: records per second and
    duration of a latency run.
    """
    lines = RunLines(console, rounds * (len(SYSTEMS) + 1))
    runs: dict[str, list[Run]] = {name: [] for name in (*SYSTEMS, *OUTPUTS)}
    loads = []
    expected = sums_of(sales(records))
    with tempfile.TemporaryDirectory(prefix="driftline-bench-") as directory:
        file = Path(directory) / "sales.jsonl"
        with file.open("w") as out:
            out.writelines(json.dumps(record) + "\n" for record in sales(records))
        for number in range(rounds):
            for name in SYSTEMS if number % 2 == 0 else SYSTEMS[::-1]:
                lines.begin(name)
                run = _measure_throughput(name, file, records, nodes, expected)
                lines.end(f"{run['records_per_s']:,.0f} records/s")
                runs[name].append(run)
            lines.begin("latency")
            latencies = _measure_latencies(rate, max(2, round(rate * seconds)), nodes)
            for name, run in latencies.items():
                runs[name].append(run)
            medians = (f"{name} {run['p50_ms']:.2f} ms" for name, run in latencies.items())
            lines.end(", ".join(medians))
            loads.append(round(getloadavg()[0], 2))
    return _report(runs, loads, {"records": records, "nodes": nodes}, rate)


def _measure_throughput(name: str, file: Path, records: int, nodes: int, expected: Sums) -> Run:
    """Measure one run. The larger number of missing outputs and of wrong sums counts as lost."""
    if name == LOOP:
        seconds, cpu_s, sums = run_loop(file, nodes)
        outputs, labels, expected_outputs = len(sums), len(sums), len(expected)
    else:
        expected_outputs = len(expected) if name == TUMBLING else records
        with BundleEngine(f"{FLOWS}:{name}", open_source(file), nodes=nodes) as engine:
            with without_gc_pauses():
                cpu_s, start = cpu_seconds(), perf_counter()
                seconds = engine.receive_outputs(expected_outputs, PATIENCE_S) - start
                cpu_s = cpu_seconds() - cpu_s
            items = [item for _, item in engine.items()]
        sums, outputs, labels = _sums_in(items), len(items), len({item.label for item in items})
    wrong_sums = sum(sums[group] != total for group, total in expected.items())
    return {
        "records_per_s": records / seconds,
        "cpu_cores": cpu_s / seconds,
        "cpu_us": 1e6 * cpu_s / records,
        "lost": max(expected_outputs - labels, wrong_sums),
        "duplicated": outputs - labels,
    }


def _sums_in(items: Sequence[Item]) -> Sums:
    """Return the sum of each key and minute, from the last output of that key and minute."""
    sums: Sums = Counter()
    for item in sorted(items, key=lambda item: item.label):
        value: Any = item.value
        if isinstance(value, dict):
            start = datetime.fromisoformat(value["start"])
            value = value["key"], minute_of(start.timestamp()), value["total"]
        key, minute, total = value
        sums[key, minute] = total
    return sums


def _measure_latencies(rate: float, records: int, nodes: int) -> dict[str, Run]:
    """Measure one latency run. Return the figures of each output."""
    due_times: list[float] = []
    with BundleEngine(f"{FLOWS}:both", QueueSource("sales"), nodes=nodes) as engine:
        with without_gc_pauses():
            start = perf_counter()
            for number, offset in enumerate(steady_schedule(records, rate)):
                due_times.append(start + offset)
                engine.run_until(due_times[-1])
                key, at = f"k{number % KEYS_OF_LATENCY}", number / RECORDS_PER_S
                engine.send_record({"key": key, "at": at, "value": 1})
            rows = KEYS_OF_LATENCY * ((records - 1) // RECORDS_PER_S)
            engine.receive_outputs(records + rows, PATIENCE_S)
        items = engine.items()
    runs: dict[str, Run] = {}
    for sink, (name, expected) in enumerate(zip(OUTPUTS, (records, rows), strict=True)):
        outputs = [(item.label, arrival) for arrival, item in items if item.sink == sink]
        arrivals = dict(outputs)
        latencies = [
            1000 * (arrival - due_times[label[0] - 1])
            for label, arrival in arrivals.items()
            if label[0] > records // WARMUP_DIVISOR
        ]
        counts = {"lost": expected - len(arrivals), "duplicated": len(outputs) - len(arrivals)}
        runs[name] = {**percentiles(latencies), "latencies": len(latencies), **counts}
    return runs


def _report(
    runs: Mapping[str, Sequence[Run]],
    loads: Sequence[float],
    settings: Mapping[str, object],
    rate: float,
) -> WindowsReport:
    rows = {name: Row(WindowsCase(name), runs_of_case) for name, runs_of_case in runs.items()}
    rates = {name: rows[name].values("records_per_s") for name in SYSTEMS}
    of_scan = compare_figures(rates[TUMBLING], rates[SCAN], ratio)
    of_loop = compare_figures(rates[TUMBLING], rates[LOOP], ratio)
    over_scan = compare_figures(rows[ROWS].values("p50_ms"), rows[PLAIN].values("p50_ms"), sub)
    rows[TUMBLING] = replace(rows[TUMBLING], comparisons={"of_scan": of_scan, "of_loop": of_loop})
    rows[ROWS] = replace(rows[ROWS], comparisons={"over_scan_ms": over_scan})

    def report(
        names: Sequence[str], title: str, columns: Sequence[Column], note: str, **extra: object
    ) -> ExperimentReport[WindowsCase]:
        return ExperimentReport(
            settings={**settings, **extra},
            keys=(KeyColumn("name", "system" if LOOP in names else "output"),),
            columns_by_title={title: columns},
            rows=[rows[name] for name in names],
            notes=[note],
            note_if_correct="Checked: all sums and all rows are there, and none twice.",
            problem_ending="though nothing was killed; do not use its figures",
        )

    note = f"Load averages after the rounds: {', '.join(f'{load:.1f}' for load in loads)}."
    title = f"Sums of a minute, {KEYS} keys"
    throughput = report(SYSTEMS, title, THROUGHPUT, note, keys=KEYS)
    title = f"Latency at {rate:g} records a second, in ms"
    note = "The latency of a row counts from the record that ends its window."
    return WindowsReport(throughput, report(OUTPUTS, title, LATENCY, note, rate=rate), loads)
