"""The pictures: curves of latency over percentiles, and bars of throughput.

matplotlib is slow to import, so only drawing imports it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import log10
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from driftline.bench.report.rows import LatencyRow, ThroughputRow
from driftline.bench.report.tables import Latencies, Throughputs
from driftline.bench.systems.cases import Case
from driftline.engine.counted import counted
from driftline.engine.ui.pictures import (
    INK,
    colour_of_policy,
    dress_bars,
    dress_curves,
    new_figure,
    plain_log_scale,
    save,
    scale_by_decades,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LineStyle = Literal["-"] | tuple[float, tuple[float, ...]]
"""Solid, or an offset and the lengths of dashes and gaps."""

SOLID: LineStyle = "-"
DASHED: LineStyle = (0, (5, 2))
STYLES: tuple[LineStyle, ...] = (SOLID, (0, (1, 1.2)), (0, (3, 1, 1, 1)), (0, (6, 1, 1, 1, 1, 1)))
"""Of the checkpoint intervals, the longest first."""

MARKS = {
    0.0: "0",
    0.5: "50",
    0.75: "75",
    0.9: "90",
    0.95: "95",
    0.99: "99",
    0.999: "99.9",
    0.9999: "99.99",
}
"""Share of the documents -> the mark on the axis of percentiles."""

STEADY = 15
"""Where fewer documents than this took longer, a curve is pale: another run has another one."""

LEAST_MS = 0.001
"""A shorter lateness is drawn as this one."""

ENDS = {False: "inputs and outputs in memory", True: "inputs and outputs durable"}

Values = Callable[[LatencyRow], list[float]]


def draw_latency(latencies: Latencies, path: Path) -> None:
    """Draw the latency of all documents of a case over the percentiles, with a panel for each kind
    of ends; below it, the producer's lateness."""
    rows = [row for row in latencies.rows if row.documents]
    kinds = sorted({row.case.durable for row in rows}) or [False]
    styles = _Styles([row.case for row in rows])
    figure = new_figure(2.2 + 4.6 * len(kinds), 7.0)
    grid = figure.subplots(
        2, len(kinds), sharex=True, sharey="row", squeeze=False, height_ratios=(3.2, 1)
    )
    for column, durable in enumerate(kinds):
        shown = [row for row in rows if row.case.durable is durable]
        upper, lower = grid[0][column], grid[1][column]
        _draw_curves(upper, shown, styles, _latencies)
        _draw_curves(lower, shown, styles, _lateness)
        plain_log_scale(upper)
        scale_by_decades(lower)
        upper.set_title(ENDS[durable])
        lower.set_xlabel("percentile of the documents")
    grid[0][0].set_ylabel("latency in ms")
    grid[1][0].set_ylabel("of it, producer's\nlateness in ms")
    mark_percentiles(grid[1][0], max((row.documents for row in rows), default=2))
    _draw_legend(figure, styles)
    rounds = max((len(row.runs) for row in rows), default=0)
    figure.suptitle(
        f"{latencies.rate:g} documents a second, {latencies.nodes} nodes, "
        f"all documents of {counted(rounds, 'run')}; "
        f"pale: fewer than {STEADY} documents took longer",
        fontsize=10,
        color=INK,
    )
    save(figure, path)


def draw_throughput(throughputs: Throughputs, path: Path) -> None:
    """Draw a bar for each row, from zero to the median of its runs, with the runs' spread."""
    rows = [row for row in throughputs.rows if row.runs]
    figure = new_figure(max(5.0, 1.8 + 1.1 * len(rows)), 4.4)
    panel = figure.subplots()
    spreads = [row.figure("documents_per_s") for row in rows]
    panel.bar(
        range(len(rows)),
        [spread.median for spread in spreads],
        width=0.72,
        color=[colour_of_policy(row.case.policy) for row in rows],
        yerr=[
            [spread.median - spread.least for spread in spreads],
            [spread.most - spread.median for spread in spreads],
        ],
        ecolor=INK,
        capsize=3,
        zorder=2,
    )
    for place, spread in enumerate(spreads):
        panel.annotate(
            f"{spread.median:,.0f}",
            (place, spread.most),
            xytext=(0, 4),
            textcoords="offset points",
            ha="center",
            fontsize=9,
            color=INK,
        )
    panel.set_xticks(range(len(rows)), [_below(row) for row in rows])
    panel.set_ylabel("documents per second")
    panel.set_ylim(0, 1.12 * max([1.0, *(spread.most for spread in spreads)]))
    rounds = max((len(row.runs) for row in rows), default=0)
    panel.set_title(
        f"{throughputs.documents:,} documents, {throughputs.nodes} nodes; "
        f"median, least and largest of {counted(rounds, 'run')}"
    )
    dress_bars(panel)
    save(figure, path)


class _Styles:
    """The colour of each policy, a line style for each checkpoint interval and transport; the floor
    is dashed."""

    def __init__(self, cases: Sequence[Case]) -> None:
        self.policies = list(dict.fromkeys(case.policy for case in cases if not case.is_floor))
        found = {case.checkpoint_ms for case in cases if case.checkpoint_ms is not None}
        self.intervals = sorted(found, reverse=True)
        self.transports = list(dict.fromkeys(case.transport for case in cases))
        self.cases = dict.fromkeys(
            replace(case, durable=False) for case in sorted(cases, key=self._place)
        )
        """Every line, in the order of the legend; those with durable ends look the same."""

    def of(self, case: Case) -> tuple[str, LineStyle]:
        """Colour and style of a line."""
        colour = colour_of_policy(case.policy)
        if case.is_floor:
            return colour, DASHED
        style = self.transports.index(case.transport) * max(1, len(self.intervals))
        if case.checkpoint_ms is not None:
            style += self.intervals.index(case.checkpoint_ms)
        elif not style:
            return colour, SOLID
        return colour, STYLES[style % len(STYLES)]

    def _place(self, case: Case) -> tuple[int, int, int]:
        place = -1 if case.is_floor else self.policies.index(case.policy)
        return place, case.checkpoint_ms or 0, self.transports.index(case.transport)


def _latencies(row: LatencyRow) -> list[float]:
    return sorted(ms for run in row.runs for ms in run.latencies_ms)


def _lateness(row: LatencyRow) -> list[float]:
    return sorted(max(LEAST_MS, ms) for run in row.runs for ms in run.lateness_ms)


def _draw_curves(panel: Axes, rows: Sequence[LatencyRow], styles: _Styles, values: Values) -> None:
    for row in rows:
        ranked = values(row)
        colour, style = styles.of(row.case)
        places = [place_of((rank + 0.5) / len(ranked)) for rank in range(len(ranked))]
        steady = max(1, len(ranked) - STEADY)
        for part, width, alpha in (
            (slice(steady), 1.7, 1.0),
            (slice(steady - 1, None), 1.0, 0.45),
        ):
            panel.plot(
                places[part],
                ranked[part],
                color=colour,
                linestyle=style,
                linewidth=width,
                alpha=alpha,
            )
    dress_curves(panel)


def place_of(share: float) -> float:
    """Where a percentile is on the axis: as far from the 90th to the 99th as from there on."""
    return -log10(1 - share)


def mark_percentiles(panel: Axes, documents: int) -> None:
    """Marks up to the last one that a document is above."""
    shown = {share: mark for share, mark in MARKS.items() if (1 - share) * documents >= 1}
    panel.set_xticks([place_of(share) for share in shown], list(shown.values()))
    panel.set_xlim(0, place_of(1 - 0.4 / documents))


def _draw_legend(figure: Figure, styles: _Styles) -> None:
    from matplotlib.lines import Line2D

    entries = [
        Line2D([], [], color=colour, linestyle=style, linewidth=1.7, label=_named(line))
        for line in styles.cases
        for colour, style in [styles.of(line)]
    ]
    columns = max(1, min(len(entries), round(figure.get_figwidth() / 1.9)))
    figure.legend(
        handles=entries, loc="outside lower center", ncols=columns, frameon=False, handlelength=3.2
    )


def _named(case: Case) -> str:
    return case.name if case.checkpoint_ms is None else f"{case.name}, {case.checkpoint_ms} ms"


def _below(row: ThroughputRow) -> str:
    case = row.case
    every = "" if case.checkpoint_ms is None else f"{case.checkpoint_ms} ms"
    return "\n".join(filter(None, [case.name, every, "durable ends" if case.durable else ""]))
