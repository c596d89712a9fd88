"""The picture of latencies: their distribution, and their percentiles over time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from driftline.engine.ui.pictures import (
    colours_of,
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
    """Draw the distribution of latencies, and percentiles over time.

    A colour for each policy and kind of ends, a line style for each checkpoint interval.
    """
    figure = new_figure(8.4, 8.4)
    shares, time = figure.subplots(2, 1)
    colours = colours_of(map(_named, analysis.series))
    intervals = sorted({s.checkpoint_ms for s in analysis.series if s.checkpoint_ms is not None})
    for series in analysis.series:
        colour = colours[_named(series)]
        style = "-"
        if series.checkpoint_ms is not None:
            style = STYLES[intervals.index(series.checkpoint_ms) % len(STYLES)]
        _draw_shares(shares, series, colour, style)
        _draw_time(time, series, colour, style)
    plain_log_scale(shares, horizontal=True)
    shares.set_yscale("log")
    least, most = shares.get_ylim()
    shares.set_yticks(list(SHARES), list(SHARES.values()))
    shares.minorticks_off()
    shares.set_ylim(most, least)  # the largest latencies are at the top
    shares.set_xlabel("latency in ms")
    shares.set_ylabel("documents that took no longer")
    plain_log_scale(time)
    time.set_xlabel(f"seconds since the start of the run, in steps of {analysis.bucket_s:g}")
    time.set_ylabel("latency in ms: p50, and p99 (thin)")
    for panel in (shares, time):
        dress_curves(panel)
    handles, labels = shares.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=4, frameon=False, fontsize=9)
    save(figure, path)


def _draw_shares(panel: Axes, series: Series, colour: str, style: str) -> None:
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
        ends, longer, color=colour, linestyle=style, linewidth=1.6, label=_named(series) + interval
    )


def _named(series: Series) -> str:
    return series.policy + (" (durable ends)" if series.durable else "")


def _draw_time(panel: Axes, series: Series, colour: str, style: str) -> None:
    buckets = [(start, each.percentiles) for start, each in series.timeline if each.documents]
    for name, width in (("p50_ms", 1.8), ("p99_ms", 0.7)):
        panel.plot(
            [start for start, _ in buckets],
            [percentiles[name] for _, percentiles in buckets],
            color=colour,
            linestyle=style,
            linewidth=width,
        )
