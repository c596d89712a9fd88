"""The picture of a corpus: the frequency of words by their rank (Zipf's law)."""

from __future__ import annotations

from pathlib import Path

from driftline.engine.ui.pictures import COLOURS, INK, dress_curves, new_figure, save
from driftline.pipeline.corpus.statistics import Statistics


def draw_zipf(corpus: Statistics, path: Path) -> None:
    """Draw frequency by rank, both logarithmic, with the fitted line."""
    ranks: list[int] = []
    frequencies: list[int] = []
    rank = 1
    for frequency, count in corpus.spectrum:  # the words of one frequency are a horizontal step
        ranks += [rank, rank + count - 1]
        frequencies += [frequency, frequency]
        rank += count
    figure = new_figure(6.4, 4.6)
    panel = figure.subplots()
    panel.loglog(ranks, frequencies, color=COLOURS[0], linewidth=2, label="words")
    zipf = corpus.zipf
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
        f"{corpus.documents:,} documents, {corpus.words:,} words, {corpus.vocabulary:,} different",
        fontsize=10,
        color=INK,
    )
    panel.legend(frameon=False)
    dress_curves(panel)
    save(figure, path)
