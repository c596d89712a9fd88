"""Speculative against buffered ordering: the gain in latency, and the elements applied again.

Both orderings run under exactly-once, with several numbers of nodes and rates of an open loop, and
*saturated*: a closed loop with as many documents under way as the front takes. Every rate runs for
the same time, of which the first quarter is warm-up.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import isfinite, isnan, nan
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from driftline.bench.experiments.rounds import RunLines
from driftline.bench.measuring.corpus import Documents, expected_outputs
from driftline.bench.measuring.loops import closed_loop, open_loop, poisson_schedule
from driftline.bench.measuring.meter import Meter, percentiles
from driftline.bench.report.check import ALL_RIGHT, wrong
from driftline.bench.report.rows import ENOUGH_FOR_P99, enough_for_p99
from driftline.bench.systems.engine import Engine
from driftline.deploy.parties.window import WINDOW
from driftline.engine.policy import ORDERINGS
from driftline.engine.ui.consoles import new_table
from driftline.engine.ui.pictures import (
    INK,
    colour_of_policy,
    dress_bars,
    new_figure,
    save,
    scale_by_decades,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

POLICY = "exactly-once"
WARMUP_SHARE = 4
"""One document in WARMUP_SHARE is warm-up."""

OPACITY = (1.0, 0.45)
"""Of the bars of each ordering: both are of one policy, so of one colour."""


FIGURES = (
    "nodes",
    "rate",
    "p50",
    "p95",
    "p99",
    "documents/s",
    "late",
    "reapplied",
    "frames/document",
)


@dataclass(frozen=True, slots=True)
class OrderingRow:
    """The figures of an ordering on some nodes at a rate in documents a second; None: saturated."""

    ordering: str
    nodes: int
    rate: float | None
    p50_ms: float
    p95_ms: float
    p99_ms: float
    """NaN if there are too few latencies."""
    documents_per_s: float
    late: float
    """Share of elements that came after a later element of their key had been applied."""
    reapplied: float
    """Number of elements undone and applied again, per element."""
    frames_per_document: float
    """Frames between stages per document: at least one for each node."""
    lost: int
    duplicated: int


@dataclass(frozen=True, slots=True)
class Load:
    """The documents to send, at `rate` documents a second; None: as fast as possible."""

    rate: float | None
    documents: Documents

    def __str__(self) -> str:
        return _named(self.rate)


def _named(rate: float | None) -> str:
    return "saturated" if rate is None else f"{rate:g} documents/s"


def loads(
    documents: Documents, rates: Sequence[float], seconds: float, saturated: int
) -> list[Load]:
    """A load of `seconds` for each rate, then one of `saturated` documents unless that is 0."""
    timed = [Load(rate, documents[: round(rate * seconds)]) for rate in rates]
    return timed + ([Load(None, documents[:saturated])] if saturated else [])


def measure_ordering(
    loads: Sequence[Load], nodes: Sequence[int], seed: int, console: Console
) -> list[OrderingRow]:
    """Run both orderings, one after the other, with every load on every number of nodes."""
    lines = RunLines(console, len(nodes) * len(loads) * len(ORDERINGS))
    rows = []
    for count in nodes:
        for load in loads:
            for ordering in ORDERINGS:
                lines.begin(f"{ordering}, nodes: {count}, {load}")
                row = measure(ordering, count, load, seed)
                lines.end(f"p50 {row.p50_ms:.2f} ms, {row.late:.1%} late")
                rows.append(row)
    return rows


def measure(ordering: str, nodes: int, load: Load, seed: int) -> OrderingRow:
    """Measure one run."""
    documents = load.documents
    meter = Meter(expected_outputs(documents), warmup=len(documents) // WARMUP_SHARE)
    with Engine(documents, POLICY, nodes=nodes, ordering=ordering) as engine:
        if load.rate is None:
            closed_loop(engine, meter, WINDOW)
        else:
            open_loop(engine, meter, poisson_schedule(len(documents), load.rate, seed))
        figures = engine.figures()
    elements = max(1, figures["elements"])
    latencies = meter.latencies_ms()
    latency = percentiles(latencies)
    return OrderingRow(
        ordering,
        nodes,
        load.rate,
        latency["p50_ms"],
        latency["p95_ms"],
        latency["p99_ms"] if enough_for_p99(len(latencies)) else nan,
        meter.throughput_result(0.0).documents_per_s,
        figures["late"] / elements,
        figures["reapplied"] / elements,
        figures["frames"] / len(documents),
        meter.lost,
        meter.duplicated,
    )


def wrong_orderings(rows: Sequence[OrderingRow]) -> list[str]:
    """A sentence for each row with an output that is lost or came twice."""
    return wrong((f"{row.ordering}, nodes: {row.nodes}, {_named(row.rate)}", row) for row in rows)


def as_json(rows: Sequence[OrderingRow]) -> dict[str, object]:
    """The rows as a JSON object."""
    return {"policy": POLICY, "rows": [_rounded(asdict(row)) for row in rows]}


def _rounded(row: Mapping[str, object]) -> dict[str, object]:
    """The figures with five digits; NaN, which JSON lacks, as None."""
    return {
        name: (round(value, 5) if isfinite(value) else None) if isinstance(value, float) else value
        for name, value in row.items()
    }


def table(rows: Sequence[OrderingRow]) -> Table:
    """The rows as a table for a terminal; latencies in ms."""
    shown = new_table(f"Ordering under {POLICY}, latency in ms", ["ordering"], FIGURES)
    notes = [] if wrong_orderings(rows) else [ALL_RIGHT]
    if any(isnan(row.p99_ms) for row in rows):
        notes.insert(0, f"p99 needs {ENOUGH_FOR_P99:,} latencies: give more --seconds.")
    shown.caption = "\n".join(notes)
    for number, row in enumerate(rows):
        shown.add_row(
            row.ordering,
            str(row.nodes),
            "saturated" if row.rate is None else f"{row.rate:g}",
            *("" if isnan(ms) else f"{ms:.2f}" for ms in (row.p50_ms, row.p95_ms, row.p99_ms)),
            f"{row.documents_per_s:,.0f}",
            f"{row.late:.2%}",
            f"{row.reapplied:.2%}",
            f"{row.frames_per_document:.2f}",
            end_section=number + 1 < len(rows) and rows[number + 1].nodes != row.nodes,
        )
    return shown


def draw(rows: Sequence[OrderingRow], path: Path) -> None:
    """Draw a panel per number of nodes; a bar shows the median, its line the 95th percentile."""
    nodes = sorted({row.nodes for row in rows})
    figure = new_figure(1.6 + 3.4 * len(nodes), 4.2)
    panels: list[Axes] = list(figure.subplots(1, len(nodes), sharey=True, squeeze=False)[0])
    for panel, count in zip(panels, nodes, strict=True):
        _draw_panel(panel, [row for row in rows if row.nodes == count])
        panel.set_title("1 node" if count == 1 else f"{count} nodes")
        panel.set_xlabel("documents per second")
    panels[0].set_ylabel("latency in ms: 50th to 95th percentile")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    save(figure, path)


def _draw_panel(panel: "Axes", rows: Sequence[OrderingRow]) -> None:
    rates = list(dict.fromkeys(row.rate for row in rows))
    for number, ordering in enumerate(ORDERINGS):
        mine = [row for row in rows if row.ordering == ordering]
        middles = [row.p50_ms for row in mine]
        panel.bar(
            [rates.index(row.rate) + 0.4 * (number - 0.5) for row in mine],
            middles,
            width=0.37,
            yerr=[[0.0] * len(mine), [row.p95_ms - row.p50_ms for row in mine]],
            ecolor=INK,
            capsize=3,
            color=colour_of_policy(POLICY),
            alpha=OPACITY[number],
            label=ordering,
            zorder=2,
        )
    scale_by_decades(panel)
    panel.set_xticks(
        range(len(rates)), ["saturated" if rate is None else f"{rate:g}" for rate in rates]
    )
    dress_bars(panel)
