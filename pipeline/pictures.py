"""The pictures of the pipeline. matplotlib is an extra, so only drawing imports it."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from engine.errors import Unavailable
from pipeline.statistics import Statistics

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ENDINGS = (".png", ".svg", ".pdf")

# Okabe and Ito: told apart also by colour-blind readers and in grey.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442")
INK = "#333333"


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
    dress(panel)
    figure.savefig(path, dpi=150)


def new_figure(width: float, height: float) -> Figure:
    """A figure of no window system: `Figure` draws with Agg when nobody asks for another."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def dress(panel: Axes) -> None:
    """Quiet lines behind what is shown."""
    panel.set_axisbelow(True)
    panel.grid(which="major", color="#DDDDDD", linewidth=0.8)
    panel.spines[["top", "right"]].set_visible(False)
