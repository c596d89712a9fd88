"""The figures of a benchmark, as tables for people and as JSON for programs.

Figures are medians over the runs, with the least and the largest run in brackets where one table
shows the spread; `max` is the largest latency of all runs. A row is compared with the floor, and
with `none`, which is Driftline without guarantees: always with those that have the same ends (see
`systems.cases`), and with the `none` of the same transport. Other transports are compared with
`ipc`.

In the JSON the rows with durable ends have an object of their own, `durable`, of the same form; it
is None if there are none. The reason of a row that could not be measured is below the table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import isnan

from rich.table import Table
from rich.text import Text

from driftline.bench.report.check import check
from driftline.bench.report.rows import (
    ENOUGH_FOR_P99,
    LATENCY_FIGURES,
    LatencyRow,
    Row,
    ThroughputRow,
)
from driftline.bench.report.spread import (
    NOTHING,
    Spread,
    difference,
    number,
    ratio,
    three_digits,
)
from driftline.bench.systems.cases import IPC
from driftline.engine.ui.consoles import new_table

BASELINE = "none"
"""The policy that the overhead of the others is measured against."""

WITH_SPREAD = ("p50_ms", "p99_ms")
"""The percentiles whose spread a table shows."""


@dataclass(frozen=True, slots=True)
class Latencies:
    """The figures of an open-loop benchmark."""

    rate: float  # documents a second
    documents: int  # of each run, with the warm-up
    nodes: int
    rows: Sequence[LatencyRow]
    sync_ms: float = 0.0  # what a write of 4 KiB and its fdatasync take here

    def as_json(self) -> dict[str, object]:
        """The figures as a JSON object."""
        return _json(self.rate, self.documents, self.nodes, self.rows, self.sync_ms)

    def tables(self) -> list[Table]:
        """For a terminal: the latencies, and the medians compared."""
        return [self._latencies(), self._comparison()]

    def _latencies(self) -> Table:
        table = _table(
            f"Latency in ms at {self.rate:g} documents a second, {self.nodes} nodes",
            ["p50", "p75", "p95", "p99", "max", "late p99"],
        )
        for row in self.rows:
            spreads = [row.figure(name) for name in LATENCY_FIGURES]
            figures = [
                str(spread) if name in WITH_SPREAD else spread.middle(three_digits)
                for name, spread in zip(LATENCY_FIGURES, spreads, strict=True)
            ]
            largest = "" if isnan(row.max_ms) else three_digits(row.max_ms)
            late = row.late_p99.middle(three_digits)
            _add(table, row, [*figures, largest, late], self.rows)
        notes = [
            " ".join(filter(None, [_runs(self.rows), "max: the largest latency of all runs."])),
            "Latency counts from the time at which a document is due until its last output has "
            "arrived; late: the part of it before the producer handed the document over.",
        ]
        if few := [row.documents for row in self.rows if row.too_few]:
            notes.append(
                f"p99 needs {ENOUGH_FOR_P99:,} latencies in a row; here are {min(few):,}: "
                "give more --documents or --repeat."
            )
        if any(row.case.durable for row in self.rows):
            notes.append(f"To append 4 KiB and wait for the disk takes {self.sync_ms:.2f} ms here.")
        return _with_notes(table, notes, self.rows)

    def _comparison(self) -> Table:
        several = any(row.case.transport != IPC for row in self.rows)
        columns = ["of floor", f"over {BASELINE}, ms", *([f"over {IPC}, ms"] if several else [])]
        table = _table("Medians compared, round by round", columns)
        for row in self.rows:
            times = of_floor(row, self.rows).shown(three_digits)
            over = [over_baseline(row, self.rows), *([over_ipc(row, self.rows)] if several else [])]
            shown = [spread.shown(_signed, until=" to ") for spread in over]
            _add(table, row, [times and f"x{times}", *shown], self.rows)
        return _with_notes(table, [check(self.rows)])


@dataclass(frozen=True, slots=True)
class Throughputs:
    """The figures of a closed-loop benchmark."""

    documents: int
    nodes: int
    rows: Sequence[ThroughputRow]

    def as_json(self) -> dict[str, object]:
        """The figures as a JSON object; `rate` is None, as the system sets its own."""
        return _json(None, self.documents, self.nodes, self.rows)

    def tables(self) -> list[Table]:
        """For a terminal."""
        table = _table(
            f"Throughput, {self.nodes} nodes",
            ["documents/s", "outputs/s", "cores", "of floor", f"of {BASELINE}"],
        )
        for row in self.rows:
            figures = [
                row.figure("documents_per_s").shown("{:,.0f}".format),
                row.figure("outputs_per_s").middle("{:,.0f}".format),
                row.figure("cpu_cores").middle("{:.2f}".format),
                of_floor(row, self.rows).shown("{:.0%}".format),
                of_baseline(row, self.rows).shown("{:.0%}".format),
            ]
            _add(table, row, figures, self.rows)
        notes = [
            _runs(self.rows),
            "outputs: a document has one for each of its different words; cores: processor cores "
            "busy on average, with all processes, the producer and the consumer among them.",
            check(self.rows),
        ]
        return [_with_notes(table, notes, self.rows)]


def of_floor(row: Row, rows: Sequence[Row]) -> Spread:
    """How many times the floor's figure a row's is; the floor has the same ends."""
    floor = next((r for r in rows if r.case.is_floor and r.case.durable is row.case.durable), None)
    return NOTHING if floor is None or row is floor else ratio(row.compared, floor.compared)


def over_baseline(row: Row, rows: Sequence[Row]) -> Spread:
    """By how much a row's figure is above that of `none` with the same ends."""
    baseline = _baseline(row, rows)
    return NOTHING if baseline is None else difference(row.compared, baseline.compared)


def over_ipc(row: Row, rows: Sequence[Row]) -> Spread:
    """By how much a row's figure is above that of the same case by `ipc`."""
    case = replace(row.case, transport=IPC)
    same = next((r for r in rows if r.case == case and r is not row), None)
    return NOTHING if same is None else difference(row.compared, same.compared)


def of_baseline(row: Row, rows: Sequence[Row]) -> Spread:
    """How many times the figure of `none` with the same ends a row's is."""
    baseline = _baseline(row, rows)
    return NOTHING if baseline is None else ratio(row.compared, baseline.compared)


def _baseline(row: Row, rows: Sequence[Row]) -> Row | None:
    if row.case.is_floor or row.case.policy == BASELINE:
        return None
    ends = row.case.durable, row.case.transport
    return next(
        (
            r
            for r in rows
            if r.case.policy == BASELINE and (r.case.durable, r.case.transport) == ends
        ),
        None,
    )


def _json(
    rate: float | None, documents: int, nodes: int, rows: Sequence[Row], sync_ms: float = 0.0
) -> dict[str, object]:
    durable = [row for row in rows if row.case.durable]
    return {
        "rate": rate,
        "documents": documents,
        "nodes": nodes,
        **_compared_json([row for row in rows if not row.case.durable]),
        "durable": {"sync_ms": number(sync_ms), **_compared_json(durable)} if durable else None,
    }


def _compared_json(rows: Sequence[Row]) -> dict[str, object]:
    """The rows with the same ends, apart from their floor."""
    floor = [row.as_json() for row in rows if row.case.is_floor]
    others = [
        {
            "policy": row.case.policy,
            "checkpoint_ms": row.case.checkpoint_ms,
            "transport": row.case.transport,
            **row.as_json(),
            "of_floor": _spread_json(of_floor(row, rows)),
            f"of_{BASELINE}": _spread_json(of_baseline(row, rows)),
            **(
                {}
                if row.case.transport == IPC
                else {f"over_{IPC}": _spread_json(over_ipc(row, rows))}
            ),
            **({} if row.reason is None else {"reason": row.reason}),
        }
        for row in rows
        if not row.case.is_floor
    ]
    return {"floor": floor[0] if floor else None, "rows": others}


def _spread_json(spread: Spread) -> list[float | None]:
    """[median, least, largest]"""
    return [number(spread.median), number(spread.least), number(spread.most)]


def _table(title: str, figures: Sequence[str]) -> Table:
    return new_table(title, ["policy", "durable"], ["checkpoint_ms", *figures])


def _add(table: Table, row: Row, figures: Sequence[str], rows: Sequence[Row]) -> None:
    """Add a row; without figures if it could not be measured.

    A line follows the floor, and the last row with the same ends.
    """
    case = row.case
    every = "" if case.checkpoint_ms is None else str(case.checkpoint_ms)
    if row.reason is not None:
        figures = ["-"] * len(figures)
    after = rows[rows.index(row) + 1 :]
    last = case.is_floor or (bool(after) and after[0].case.durable is not case.durable)
    table.add_row(case.name, ", ".join(case.keeps), every, *figures, end_section=last)


def _with_notes(table: Table, notes: Sequence[str], rows: Sequence[Row] = ()) -> Table:
    """Put notes below a table, and the reasons of rows without figures: columns are too narrow."""
    reasons = [f"{row.case.policy}: {row.reason}" for row in rows if row.reason is not None]
    table.caption = Text("\n".join([*filter(None, notes), *reasons]))
    return table


def _runs(rows: Sequence[Row]) -> str:
    """How many runs the figures are medians of."""
    runs = max((len(row.runs) for row in rows), default=0)
    return f"Medians of {runs} runs, with the least and the largest of them." if runs > 1 else ""


def _signed(ms: float) -> str:
    return ("-" if ms < 0 else "+") + three_digits(abs(ms))
