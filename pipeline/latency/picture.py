"""The picture of latencies: their distribution, and their percentiles over time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from driftline.engine.ui.pictures import (
    colour_of_policy,
    dress_curves,
    new_figure,
    plain_log_scale,
    save,
)
from driftline.pipeline.latency.analysis import Analysis, Series

if TYPE_CHECKING:
    from matplotlib.axes import Axes

STYLES = ("-", "--", ":", "-.")
SHARES = {1.0: "0 %", 0.5: "50 %", 0.1: "90 %", 0.01: "99 %", 0.001: "99.9 %", 0.0001: "99.99 %"}
"""Share of documents that took longer -> the mark on the axis."""


def draw_latency(analysis: Analysis, path: Path) -> None:
    """Draw the distribution of latencies, and percentiles over time, for each kind of ends.

    The colour is that of the policy; there is a line style for each checkpoint interval.
    """
    kinds = sorted({series.durable for series in analysis.series})
    figure = new_figure(2.2 + 6.2 * len(kinds), 8.4)
    grid = figure.subplots(2, len(kinds), sharex="row", sharey="row", squeeze=False)
    intervals = sorted({s.checkpoint_ms for s in analysis.series if s.checkpoint_ms is not None})
    for series in analysis.series:
        shares, time = grid[:, kinds.index(series.durable)]
        style = "-"
        if series.checkpoint_ms is not None:
            style = STYLES[intervals.index(series.checkpoint_ms) % len(STYLES)]
        _draw_shares(shares, series, style)
        _draw_time(time, series, style)
    for durable, (shares, time) in zip(kinds, grid.T, strict=True):
        shares.set_title(f"inputs and outputs {'durable' if durable else 'in memory'}")
        _dress_shares(shares)
        _dress_time(time, analysis.bucket_s)
    first = grid[0][0]
    first.set_ylim(*reversed(first.get_ylim()))  # the largest latencies are at the top
    first.set_ylabel("documents that took no longer")
    grid[1][0].set_ylabel("latency in ms: p50, and p99 (thin)")
    entries = {line.get_label(): line for panel in grid[0] for line in panel.get_lines()}
    figure.legend(
        handles=list(entries.values()),
        loc="outside lower center",
        ncols=4,
        frameon=False,
        fontsize=9,
    )
    save(figure, path)


def _dress_shares(panel: Axes) -> None:
    plain_log_scale(panel, horizontal=True)
    panel.set_yscale("log")
    panel.set_yticks(list(SHARES), list(SHARES.values()))
    panel.minorticks_off()
    panel.set_xlabel("latency in ms")
    dress_curves(panel)


def _dress_time(panel: Axes, bucket_s: float) -> None:
    plain_log_scale(panel)
    panel.set_xlabel(f"seconds since the start of the run, in steps of {bucket_s:g}")
    dress_curves(panel)


def _draw_shares(panel: Axes, series: Series, style: str) -> None:
    """Draw the share of documents above the upper end of each bucket, down to one document."""
    remaining = series.whole.documents
    ends: list[float] = []
    longer: list[float] = []
    for _, end, documents in series.histogram:
        remaining -= documents
        if remaining:
            ends.append(end)
            longer.append(remaining / series.whole.documents)
    interval = "" if series.checkpoint_ms is None else f", {series.checkpoint_ms} ms"
    panel.plot(
        ends,
        longer,
        color=colour_of_policy(series.policy),
        linestyle=style,
        linewidth=1.6,
        label=series.policy + interval,
    )


def _draw_time(panel: Axes, series: Series, style: str) -> None:
    buckets = [(start, each.percentiles) for start, each in series.timeline if each.documents]
    for name, width in (("p50_ms", 1.8), ("p99_ms", 0.7)):
        panel.plot(
            [start for start, _ in buckets],
            [percentiles[name] for _, percentiles in buckets],
            color=colour_of_policy(series.policy),
            linestyle=style,
            linewidth=width,
        )
