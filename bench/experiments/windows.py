"""Windows: throughput against a hand-written scan and a bare loop, and latency of the rows.

*Throughput*: the same file of records, as fast as possible. Each round reverses the order.

- `tumbling`: a `Sum` in windows of one minute, with a row per key and minute;
- `scan`: a function with a state that makes the same sums, with an output per record;
- `bare loop`: as many processes as nodes in plain Python, without an engine (`systems.bare_loop`).

*Latency*: a flow with a plain scan and with windows gets records at even intervals, in the order of
their event times. A row has the label of the record that ends its window. Both latencies count from
the time at which that record is due until the output is at the consumer.
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
    Comparison,
    ExperimentReport,
    Figure,
    KeyColumn,
    Row,
    compare_rows,
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

WARMUP_SHARE = 5
"""The first 1 / WARMUP_SHARE of the records of a latency run is warm-up."""

KEYS_OF_LATENCY, RECORDS_PER_S = 5, 10
"""Keys of a latency run, and records in a second of event time, which is a window."""

THROUGHPUT = (
    Figure("records_per_s", "records/s", "{:,.0f}".format, with_spread=True),
    Figure("cpu_cores", "cores", "{:.2f}".format),
    Figure("cpu_us", "CPU us per record", "{:,.0f}".format, with_spread=True),
    *COUNTS,
    Comparison("of_scan", "of the scan", "{:.0%}".format),
    Comparison("of_loop", "of the bare loop", "{:.1%}".format),
)
LATENCY = (
    Figure("p50_ms", "p50", with_spread=True),
    Figure("p95_ms", "p95"),
    Figure("max_ms", "max", combined=max),
    Figure("latencies", combined=sum),
    *COUNTS,
    Comparison("over_scan_ms", "p50 over the scan", "{:+.2f}".format, until=" to "),
)

Run = Mapping[str, float]


class Measured(Struct, frozen=True):
    """A system, or an output of the latency runs."""

    name: str

    def __str__(self) -> str:
        return self.name


class WindowsReport(Struct, frozen=True):
    """Reports of throughput and latency."""

    throughput: ExperimentReport[Measured]
    latency: ExperimentReport[Measured]
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
    """Run everything in turn, `rounds` times; `rate`, `seconds`: of each latency run."""
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
                run = _throughput(name, file, records, nodes, expected)
                lines.end(f"{run['records_per_s']:,.0f} records/s")
                runs[name].append(run)
            lines.begin("latency")
            found = _latencies(rate, max(2, round(rate * seconds)), nodes)
            for name, run in found.items():
                runs[name].append(run)
            lines.end(", ".join(f"{name} {run['p50_ms']:.2f} ms" for name, run in found.items()))
            loads.append(round(getloadavg()[0], 2))
    return _report(runs, loads, {"records": records, "nodes": nodes}, rate)


def _throughput(name: str, file: Path, records: int, nodes: int, expected: Sums) -> Run:
    """Measure one run. Outputs that are missing, and sums that are wrong, count as lost."""
    if name == LOOP:
        seconds, cpu, sums = run_loop(file, nodes)
        count, labels, outputs = len(sums), len(sums), len(expected)
    else:
        outputs = len(expected) if name == TUMBLING else records
        with BundleEngine(f"{FLOWS}:{name}", open_source(file), nodes=nodes) as engine:
            with without_gc_pauses():
                cpu, began = cpu_seconds(), perf_counter()
                seconds = engine.receive_outputs(outputs, PATIENCE_S) - began
                cpu = cpu_seconds() - cpu
            items = [item for _, item in engine.items()]
        sums, count, labels = _sums_in(items), len(items), len({item.label for item in items})
    wrong = sum(sums[place] != total for place, total in expected.items())
    return {
        "records_per_s": records / seconds,
        "cpu_cores": cpu / seconds,
        "cpu_us": 1e6 * cpu / records,
        "lost": max(outputs - labels, wrong),
        "duplicated": count - labels,
    }


def _sums_in(items: Sequence[Item]) -> Sums:
    """Return the sum of each key and minute: that in its last output."""
    sums: Sums = Counter()
    for item in sorted(items, key=lambda item: item.label):
        value: Any = item.value
        if isinstance(value, dict):
            start = datetime.fromisoformat(value["start"])
            value = value["key"], minute_of(start.timestamp()), value["total"]
        key, minute, total = value
        sums[key, minute] = total
    return sums


def _latencies(rate: float, records: int, nodes: int) -> dict[str, Run]:
    """Measure one latency run. Return the figures of each output."""
    due: list[float] = []
    with BundleEngine(f"{FLOWS}:both", QueueSource("sales"), nodes=nodes) as engine:
        with without_gc_pauses():
            began = perf_counter()
            for number, offset in enumerate(steady_schedule(records, rate)):
                due.append(began + offset)
                engine.run_until(due[-1])
                key, at = f"k{number % KEYS_OF_LATENCY}", number / RECORDS_PER_S
                engine.send_record({"key": key, "at": at, "value": 1})
            rows = KEYS_OF_LATENCY * ((records - 1) // RECORDS_PER_S)
            engine.receive_outputs(records + rows, PATIENCE_S)
        arrived = engine.items()
    found: dict[str, Run] = {}
    for sink, (name, expected) in enumerate(zip(OUTPUTS, (records, rows), strict=True)):
        outputs = [(item.label, at) for at, item in arrived if item.sink == sink]
        labels = dict(outputs)
        latencies = [
            1000 * (at - due[label[0] - 1])
            for label, at in labels.items()
            if label[0] > records // WARMUP_SHARE
        ]
        counts = {"lost": expected - len(labels), "duplicated": len(outputs) - len(labels)}
        found[name] = {**percentiles(latencies), "latencies": len(latencies), **counts}
    return found


def _report(
    runs: Mapping[str, Sequence[Run]],
    loads: Sequence[float],
    settings: Mapping[str, object],
    rate: float,
) -> WindowsReport:
    rows = {name: Row(Measured(name), found) for name, found in runs.items()}
    speeds = {name: rows[name].values("records_per_s") for name in SYSTEMS}
    scan = compare_rows(speeds[TUMBLING], speeds[SCAN], ratio)
    loop = compare_rows(speeds[TUMBLING], speeds[LOOP], ratio)
    over = compare_rows(rows[ROWS].values("p50_ms"), rows[PLAIN].values("p50_ms"), sub)
    rows[TUMBLING] = replace(rows[TUMBLING], comparisons={"of_scan": scan, "of_loop": loop})
    rows[ROWS] = replace(rows[ROWS], comparisons={"over_scan_ms": over})

    def report(
        names: Sequence[str], title: str, columns: Sequence[Column], note: str, **more: object
    ) -> ExperimentReport[Measured]:
        return ExperimentReport(
            settings={**settings, **more},
            keys=(KeyColumn("name", "system" if LOOP in names else "output"),),
            columns_by_title={title: columns},
            rows=[rows[name] for name in names],
            notes=[note],
            if_right="Checked: all sums and all rows are there, and none twice.",
            if_wrong="though nothing was killed; do not use its figures",
        )

    made = f"Load averages after the rounds: {', '.join(f'{load:.1f}' for load in loads)}."
    title = f"Sums of a minute, {KEYS} keys"
    throughput = report(SYSTEMS, title, THROUGHPUT, made, keys=KEYS)
    title = f"Latency at {rate:g} records a second, in ms"
    note = "Of a row: from the record that ends its window."
    return WindowsReport(throughput, report(OUTPUTS, title, LATENCY, note, rate=rate), loads)
