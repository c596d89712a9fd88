"""The picture of a corpus: how frequent words are by their rank (Zipf's law)."""

from __future__ import annotations

from pathlib import Path

from driftline.engine.ui.pictures import COLOURS, INK, dress_curves, new_figure, save
from driftline.pipeline.corpus.statistics import Statistics


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
    dress_curves(panel)
    save(figure, path)
