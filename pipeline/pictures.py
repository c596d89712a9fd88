"""The pictures of the pipeline. matplotlib is an extra, so only drawing imports it."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from driftline.engine.errors import Unavailable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from driftline.pipeline.latency import Analysis, Series
    from driftline.pipeline.statistics import Statistics

ENDINGS = (".png", ".svg", ".pdf")

# Okabe and Ito: told apart also by colour-blind readers and in grey.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442")
INK = "#333333"
STYLES = ("-", "--", ":", "-.")
SHARES = {1.0: "0 %", 0.5: "50 %", 0.1: "90 %", 0.01: "99 %", 0.001: "99.9 %", 0.0001: "99.99 %"}
"""Documents that took longer, and how the axis calls it."""


def check_matplotlib() -> None:
    """Raises Unavailable before anything long begins."""
    if find_spec("matplotlib") is None:
        raise Unavailable("a picture needs matplotlib: pip install 'driftline[bench]'")


def draw_zipf(found: Statistics, path: Path) -> None:
    """Frequency by rank, both logarithmic, with the line that fits."""
    ranks: list[int] = []
    frequencies: list[int] = []
    rank = 1
    for frequency, count in found.spectrum:  # words of one frequency: a step, from end to end
        ranks += [rank, rank + count - 1]
        frequencies += [frequency, frequency]
        rank += count
    figure = new_figure(6.4, 4.6)
    panel = figure.subplots()
    panel.loglog(ranks, frequencies, color=COLOURS[0], linewidth=2, label="words")
    zipf = found.zipf
    if zipf is not None:
        ends = [1, zipf.ranks]
        panel.loglog(
            ends,
            [zipf.largest * end**-zipf.exponent for end in ends],
            color=COLOURS[5],
            linestyle="--",
            linewidth=1.4,
            label=f"rank$^{{-{zipf.exponent:.2f}}}$, fitted to {zipf.ranks:,} ranks",
        )
    panel.set_xlabel("rank of the word")
    panel.set_ylabel("how often it occurs")
    panel.set_title(
        f"{found.documents:,} documents, {found.words:,} words, {found.vocabulary:,} different",
        fontsize=10,
        color=INK,
    )
    panel.legend(frameon=False)
    _dress(panel)
    figure.savefig(path, dpi=150)


def draw_latency(found: Analysis, path: Path) -> None:
    """Which share of the documents took how long, and percentiles over time.

    A colour for each policy, a line style for each checkpoint interval.
    """
    figure = new_figure(8.4, 8.4)
    shares, time = figure.subplots(2, 1)
    policies = list(dict.fromkeys(series.policy for series in found.series))
    intervals = sorted({s.checkpoint_ms for s in found.series if s.checkpoint_ms is not None})
    for series in found.series:
        colour = COLOURS[policies.index(series.policy) % len(COLOURS)]
        style = "-"
        if series.checkpoint_ms is not None:
            style = STYLES[intervals.index(series.checkpoint_ms) % len(STYLES)]
        _draw_shares(shares, series, colour, style)
        _draw_time(time, series, colour, style)
    shares.set_xscale("log")
    shares.set_yscale("log")
    least, most = shares.get_ylim()
    shares.set_yticks(list(SHARES), list(SHARES.values()))
    shares.minorticks_off()
    shares.set_ylim(most, least)  # few that took longer are at the top
    shares.set_xlabel("latency in ms")
    shares.set_ylabel("documents that took no longer")
    time.set_yscale("log")
    time.set_xlabel(f"seconds since the start of the run, in steps of {found.bucket_s:g}")
    time.set_ylabel("latency in ms: p50, and p99 (thin)")
    for panel in (shares, time):
        _dress(panel)
    handles, labels = shares.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=4, frameon=False, fontsize=9)
    figure.savefig(path, dpi=150)


def _draw_shares(panel: Axes, series: Series, colour: str, style: str) -> None:
    """The share that took longer, down to one document, at the upper end of each bucket."""
    left = series.whole.documents
    ends: list[float] = []
    longer: list[float] = []
    for _, end, documents in series.histogram:
        left -= documents
        if left:
            ends.append(end)
            longer.append(left / series.whole.documents)
    interval = "" if series.checkpoint_ms is None else f", {series.checkpoint_ms} ms"
    panel.plot(
        ends, longer, color=colour, linestyle=style, linewidth=1.6, label=series.policy + interval
    )


def _draw_time(panel: Axes, series: Series, colour: str, style: str) -> None:
    parts = [(start, part.percentiles) for start, part in series.timeline if part.documents]
    for name, width in (("p50_ms", 1.8), ("p99_ms", 0.7)):
        panel.plot(
            [start for start, _ in parts],
            [percentiles[name] for _, percentiles in parts],
            color=colour,
            linestyle=style,
            linewidth=width,
        )


def new_figure(width: float, height: float) -> Figure:
    """A figure of no window system: `Figure` draws with Agg when nobody asks for another."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def _dress(panel: Axes) -> None:
    """Quiet lines behind what is shown."""
    panel.set_axisbelow(True)
    panel.grid(which="major", color="#DDDDDD", linewidth=0.8)
    panel.spines[["top", "right"]].set_visible(False)
