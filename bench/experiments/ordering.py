"""Comparison of speculative and buffered ordering: latency, and the elements undone and reapplied.

Both orderings run under exactly-once, with several numbers of nodes and open-loop rates. They also
run *saturated*: in a closed loop with as many documents in flight as the front's window admits. All
rates run for the same time; the first quarter of the documents is warm-up.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import nan
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from rich.console import Console

from driftline.bench.experiments.comparison import CORRECT_NOTE, PROBLEM_ENDING
from driftline.bench.experiments.pictures import Bar, draw_bars
from driftline.bench.experiments.report import (
    COUNTS,
    P99_LATENCIES_MIN,
    ExperimentReport,
    FigureColumn,
    KeyColumn,
    Row,
    Spread,
)
from driftline.bench.experiments.rounds import RunLines
from driftline.bench.measuring.corpus import Documents, expected_outputs
from driftline.bench.measuring.loops import closed_loop, open_loop, poisson_schedule
from driftline.bench.measuring.meter import RunMeter
from driftline.bench.systems.engine import Engine
from driftline.deploy.roles.window import WINDOW
from driftline.engine.policy import ORDERINGS
from driftline.engine.ui.pictures import (
    colour_of_policy,
    new_figure,
    plain_log_scale,
    save,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

POLICY = "exactly-once"
WARMUP_DIVISOR = 4
"""The first documents of a run are its warm-up: their number divided by this."""

OPACITY = dict(zip(ORDERINGS, (1.0, 0.45), strict=True))
"""Ordering -> opacity of its bars; both orderings have the colour of the policy."""

KEYS = (
    KeyColumn("ordering", "ordering"),
    KeyColumn("nodes", "nodes"),
    KeyColumn("rate", "rate", "{:g}".format),
)
FIGURES = (
    FigureColumn("p50_ms", "p50"),
    FigureColumn("p95_ms", "p95"),
    FigureColumn("p99_ms", "p99"),
    FigureColumn("documents_per_s", "documents/s", "{:,.0f}".format),
    FigureColumn("out_of_order", "out of order", "{:.2%}".format),
    FigureColumn("reapplied", "reapplied", "{:.2%}".format),
    FigureColumn("frames_per_document", "frames/document", "{:.2f}".format),
    *COUNTS,
)
NOTE = (
    "Without a rate: saturated. out of order: share of elements that arrived after one of their "
    "key with a larger label; reapplied: share of elements undone and applied again; "
    "frames/document: frames between nodes, which may each have elements of several documents."
)


class OrderingCase(Struct, frozen=True):
    """An ordering, a number of nodes, and a rate in documents per second (None: saturated)."""

    ordering: str
    nodes: int
    rate: float | None

    def __str__(self) -> str:
        rate = "saturated" if self.rate is None else f"{self.rate:g} documents/s"
        return f"{self.ordering}, nodes: {self.nodes}, {rate}"


OrderingRow = Row[OrderingCase]


def measure_ordering(
    documents: Documents,
    nodes: Sequence[int],
    rates: Sequence[float],
    seconds: float,
    saturated_documents: int,
    seed: int,
    console: Console,
) -> ExperimentReport[OrderingCase]:
    """Run both orderings in turn, at every rate and with every number of nodes.

    `seconds`: the duration of a run with a rate; `saturated_documents`: number of documents of each
    saturated run, or 0 for no such runs.
    """
    cases = [
        OrderingCase(ordering, count, rate)
        for count in nodes
        for rate in (*rates, *([None] if saturated_documents else []))
        for ordering in ORDERINGS
    ]
    lines = RunLines(console, len(cases))
    rows = []
    for case in cases:
        lines.begin(case)
        count = saturated_documents if case.rate is None else round(case.rate * seconds)
        row = measure(case, documents[:count], seed)
        lines.end(", ".join(f"{f.heading} {f.text(row)}" for f in FIGURES[:5]))
        rows.append(row)
    needs_more = any(row.total("latencies") < P99_LATENCIES_MIN for row in rows)
    return ExperimentReport(
        settings={"policy": POLICY},
        keys=KEYS,
        columns_by_title={f"Ordering under {POLICY}, latency in ms": FIGURES},
        rows=rows,
        notes=[
            NOTE,
            f"p99 needs {P99_LATENCIES_MIN:,} latencies: give more --seconds, or a larger "
            "--saturated."
            if needs_more
            else "",
        ],
        note_if_correct=CORRECT_NOTE,
        problem_ending=PROBLEM_ENDING,
    )


def measure(case: OrderingCase, documents: Documents, seed: int) -> OrderingRow:
    """Run a case on a new cluster, and return its row."""
    meter = RunMeter(expected_outputs(documents), warmup=len(documents) // WARMUP_DIVISOR)
    with Engine(documents, POLICY, nodes=case.nodes, ordering=case.ordering) as engine:
        if case.rate is None:
            closed_loop(engine, meter, WINDOW)
        else:
            open_loop(engine, meter, poisson_schedule(len(documents), case.rate, seed))
        counts = engine.figures()
    run = meter.throughput_figures(0.0) | meter.latency_figures()
    if run["latencies"] < P99_LATENCIES_MIN:
        run["p99_ms"] = nan
    elements = max(1, counts["elements"])
    run |= {
        "out_of_order": counts["out_of_order"] / elements,
        "reapplied": counts["reapplied"] / elements,
        "frames_per_document": counts["frames"] / len(documents),
    }
    return Row(case, [run], section=case.nodes)


def draw_ordering(rows: Sequence[OrderingRow], path: Path) -> None:
    """Draw a panel per number of nodes, with bars up to p50 and error bars up to p95."""
    nodes = sorted({row.case.nodes for row in rows})
    figure = new_figure(1.6 + 3.4 * len(nodes), 4.2)
    panels: list[Axes] = list(figure.subplots(1, len(nodes), sharey=True, squeeze=False)[0])
    for panel, count in zip(panels, nodes, strict=True):
        bars = [
            Bar(
                "saturated" if row.case.rate is None else f"{row.case.rate:g}",
                row.case.ordering,
                Spread(run["p50_ms"], run["p50_ms"], run["p95_ms"]),
                colour_of_policy(POLICY),
                OPACITY[row.case.ordering],
            )
            for row in rows
            if row.case.nodes == count
            for run in row.runs
        ]
        draw_bars(panel, bars)
        plain_log_scale(panel)
        panel.set_title("1 node" if count == 1 else f"{count} nodes")
        panel.set_xlabel("documents per second")
    panels[0].set_ylabel("latency in ms: 50th to 95th percentile")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    save(figure, path)
