"""Pictures: curves of latency over percentiles, and bars of throughput.

Only the drawing functions import matplotlib, because the import is slow.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log10
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from driftline.bench.experiments.report import Row, Spread
from driftline.bench.systems.cases import Case
from driftline.engine.texts import counted
from driftline.engine.ui.pictures import (
    INK,
    colour_of_policy,
    new_figure,
    plain_log_scale,
    save,
    scale_by_decades,
    style_bars,
    style_curves,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from driftline.bench.experiments.comparison import Results

LineStyle = Literal["-"] | tuple[float, tuple[float, ...]]
"""Line style of matplotlib: solid, or (offset, lengths of dashes and gaps)."""

SOLID: LineStyle = "-"
DASHED: LineStyle = (0, (5, 2))
STYLES: tuple[LineStyle, ...] = (SOLID, (0, (1, 1.2)), (0, (3, 1, 1, 1)), (0, (6, 1, 1, 1, 1, 1)))
"""Line styles of the snapshot intervals, longest first."""

PERCENTILE_TICKS = {
    0.0: "0",
    0.5: "50",
    0.75: "75",
    0.9: "90",
    0.95: "95",
    0.99: "99",
    0.999: "99.9",
    0.9999: "99.99",
}
"""Share of the documents -> tick label on the percentile axis."""

PALE_BELOW_DOCUMENTS = 15
"""A curve is pale where fewer documents than this took longer: there it varies between runs."""

WHOLE = slice(None)

DRAWN_MS_MIN = 0.001
"""Smaller values are drawn as this one."""

TITLES = {False: "inputs and outputs in memory", True: "inputs and outputs durable"}
"""Whether the ends of the cases are durable -> title of the column of panels."""


def draw_latency(latencies: Results, path: Path) -> None:
    """Draw latency curves over percentiles, one per case, and below them the producer's send delay.

    Durable ends and ends in memory have separate columns of panels.
    """
    rows = [row for row in latencies.rows if row.samples["latency_ms"]]
    kinds = sorted({row.case.durable for row in rows}) or [False]
    styles = _Styles([row.case for row in rows])
    figure = new_figure(2.2 + 4.6 * len(kinds), 7.0)
    grid = figure.subplots(
        2, len(kinds), sharex=True, sharey="row", squeeze=False, height_ratios=(3.2, 1)
    )
    for column, durable in enumerate(kinds):
        shown = [row for row in rows if row.case.durable is durable]
        upper, lower = grid[0][column], grid[1][column]
        _draw_curves(upper, shown, styles, "latency_ms")
        _draw_curves(lower, shown, styles, "send_delay_ms")
        plain_log_scale(upper)
        scale_by_decades(lower)
        upper.set_title(TITLES[durable])
        lower.set_xlabel("percentile of the documents")
    grid[0][0].set_ylabel("latency in ms")
    grid[1][0].set_ylabel("part of latency:\nsend delay in ms")
    mark_percentiles(grid[1][0], max((len(row.samples["latency_ms"]) for row in rows), default=2))
    _draw_legend(figure, styles)
    rounds = max((len(row.runs) for row in rows), default=0)
    figure.suptitle(
        f"{latencies.settings['rate']:g} documents a second, {latencies.settings['nodes']} nodes, "
        f"all documents of {counted(rounds, 'run')}; "
        f"pale: fewer than {PALE_BELOW_DOCUMENTS} documents took longer",
        fontsize=10,
        color=INK,
    )
    save(figure, path)


def draw_throughput(throughputs: Results, path: Path) -> None:
    """Draw a bar for each row, up to the median of its runs, with the runs' spread."""
    rows = [row for row in throughputs.rows if row.runs]
    figure = new_figure(max(5.0, 1.8 + 1.1 * len(rows)), 4.4)
    panel = figure.subplots()
    bars = [
        Bar(_case_name(row.case, "\n"), "", spread, colour_of_policy(row.case.policy))
        for row in rows
        for spread in [row.spread("documents_per_s")]
    ]
    draw_bars(panel, bars)
    panel.set_ylabel("documents per second")
    rounds = max((len(row.runs) for row in rows), default=0)
    panel.set_title(
        f"{throughputs.settings['documents']:,} documents, {throughputs.settings['nodes']} nodes; "
        f"median, least and largest of {counted(rounds, 'run')}"
    )
    save(figure, path)


class Bar(Struct, frozen=True):
    """A bar up to the median of a spread, with an error bar from its least to largest value."""

    group: str
    """Name of the group, drawn below its bars, which are side by side."""
    series: str
    """Name of the bar's series across groups, for the legend."""
    spread: Spread
    colour: str
    opacity: float = 1.0


def draw_bars(panel: Axes, bars: Sequence[Bar]) -> None:
    """Draw bars in the order of their groups and series."""
    groups = list(dict.fromkeys(bar.group for bar in bars))
    series = list(dict.fromkeys(bar.series for bar in bars))
    width = 0.8 / max(1, len(series))
    for number, name in enumerate(series):
        chosen = [bar for bar in bars if bar.series == name]
        panel.bar(
            [groups.index(bar.group) + width * (number - (len(series) - 1) / 2) for bar in chosen],
            [bar.spread.median for bar in chosen],
            width=0.92 * width,
            yerr=[
                [bar.spread.median - bar.spread.least for bar in chosen],
                [bar.spread.most - bar.spread.median for bar in chosen],
            ],
            ecolor=INK,
            capsize=3,
            color=[bar.colour for bar in chosen],
            alpha=chosen[0].opacity,
            label=name,
            zorder=2,
        )
    panel.set_xticks(range(len(groups)), groups)
    style_bars(panel)


class _Styles:
    """Colour of each policy and line style of each snapshot interval; the floor is dashed."""

    def __init__(self, cases: Sequence[Case]) -> None:
        policies = list(dict.fromkeys(case.policy for case in cases))
        intervals = {case.snapshot_interval_ms for case in cases}
        self._intervals = sorted((each for each in intervals if each is not None), reverse=True)
        entries = {replace(case, durable=False) for case in cases}
        self.cases = sorted(
            entries, key=lambda case: (policies.index(case.policy), case.snapshot_interval_ms or 0)
        )
        """The cases in the order of the legend; cases that differ only in their ends are one."""

    def style_of(self, case: Case) -> tuple[str, LineStyle]:
        """Return the colour and line style of a case."""
        style = SOLID
        if case.is_floor:
            style = DASHED
        elif case.snapshot_interval_ms is not None:
            style = STYLES[self._intervals.index(case.snapshot_interval_ms) % len(STYLES)]
        return colour_of_policy(case.policy), style


def _draw_curves(panel: Axes, rows: Sequence[Row[Case]], styles: _Styles, sample: str) -> None:
    for row in rows:
        values = [max(DRAWN_MS_MIN, ms) for ms in row.samples[sample]]
        colour, style = styles.style_of(row.case)
        steady = max(1, len(values) - PALE_BELOW_DOCUMENTS)
        line = {"color": colour, "linestyle": style}
        draw_over_percentiles(panel, values, slice(steady), linewidth=1.7, **line)
        draw_over_percentiles(panel, values, slice(steady - 1, None), alpha=0.45, **line)
    style_curves(panel)


def draw_over_percentiles(
    panel: Axes, values: Sequence[float], part: slice = WHOLE, **line: Any
) -> None:
    """Draw the distribution of values.

    `part`: the part of the sorted values to draw; `line`: arguments of matplotlib's `plot`.
    """
    ranked = sorted(values)
    positions = [_axis_position((rank + 0.5) / len(ranked)) for rank in range(len(ranked))]
    panel.plot(positions[part], ranked[part], **{"linewidth": 1.0, **line})


def _axis_position(share: float) -> float:
    """Return the position of a share on the percentile axis: 90-99 is as wide as 99-99.9."""
    return -log10(1 - share)


def mark_percentiles(panel: Axes, documents: int) -> None:
    """Set percentile ticks, up to the last percentile that at least one document exceeds."""
    ticks = {
        share: label for share, label in PERCENTILE_TICKS.items() if (1 - share) * documents >= 1
    }
    panel.set_xticks([_axis_position(share) for share in ticks], list(ticks.values()))
    panel.set_xlim(0, _axis_position(1 - 0.4 / documents))


def _draw_legend(figure: Figure, styles: _Styles) -> None:
    from matplotlib.lines import Line2D

    entries = [
        Line2D([], [], color=colour, linestyle=style, linewidth=1.7, label=_case_name(case, ", "))
        for case in styles.cases
        for colour, style in [styles.style_of(case)]
    ]
    columns = max(1, min(len(entries), round(figure.get_figwidth() / 1.9)))
    figure.legend(
        handles=entries, loc="outside lower center", ncols=columns, frameon=False, handlelength=3.2
    )


def _case_name(case: Case, separator: str) -> str:
    interval = "" if case.snapshot_interval_ms is None else f"{case.snapshot_interval_ms} ms"
    ends = "durable ends" if case.durable else ""
    return separator.join(filter(None, [case.policy, interval, ends]))
