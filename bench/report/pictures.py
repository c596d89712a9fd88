"""The pictures: bars of latency percentiles and of throughput, in the manner of the paper.

matplotlib is slow to import, so only drawing imports it.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from driftline.bench.report.tables import Latencies, LatencyRow, Throughputs
from driftline.engine.ui.pictures import (
    INK,
    colours_of,
    dress_bars,
    new_figure,
    save,
    scale_by_decades,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SHOWN = {"p50_ms": "50th", "p75_ms": "75th", "p95_ms": "95th", "p99_ms": "99th"}

HEIGHT = 4.4
GROUP = 0.84  # width of a group of bars, of the 1.0 from one group to the next


def draw_latency(latencies: Latencies, path: Path) -> None:
    """Draw a panel per checkpoint interval, with the percentiles of every policy.

    Policies without checkpoints are in every panel, for comparison.
    """
    rows = [row for row in latencies.rows if row.reason is None]
    colours = colours_of(row.policy for row in rows)
    intervals = sorted({row.checkpoint_ms for row in rows if row.checkpoint_ms is not None})
    panels: list[int | None] = [*intervals] or [None]

    figure = new_figure(1.6 + 4.0 * len(panels), HEIGHT)
    axes: list[Axes] = list(figure.subplots(1, len(panels), sharey=True, squeeze=False)[0])
    for panel, interval in zip(axes, panels, strict=True):
        _draw_floor(panel, latencies)
        shown = [row for row in rows if row.checkpoint_ms in (None, interval)]
        _draw_bars(panel, shown, colours)
        panel.set_title("no checkpoints" if interval is None else f"checkpoint every {interval} ms")
        panel.set_xlabel("percentile")
    axes[0].set_ylabel("latency in ms")
    _draw_legend(figure, colours)
    figure.suptitle(
        f"{latencies.documents} documents at {latencies.rate:g}/s, {latencies.nodes} nodes",
        fontsize=10,
        color=INK,
    )
    save(figure, path)


def draw_throughput(throughputs: Throughputs, path: Path) -> None:
    """Draw a bar per row, and the floor as a dashed line."""
    rows = [row for row in throughputs.rows if row.reason is None]
    colours = colours_of(row.policy for row in rows)
    figure = new_figure(max(5.0, 1.8 + 0.95 * len(rows)), HEIGHT)
    panel = figure.subplots()
    bars = panel.bar(
        range(len(rows)),
        [row.documents_per_s for row in rows],
        width=0.72,
        color=[colours[row.policy] for row in rows],
        zorder=2,
    )
    panel.bar_label(bars, fmt="{:,.0f}", padding=2, fontsize=9, color=INK)
    floor = throughputs.floor.documents_per_s
    panel.axhline(floor, color=INK, linestyle="--", linewidth=1.2, zorder=3)
    panel.annotate(
        f"floor {floor:,.0f}",
        (1, floor),
        xycoords=("axes fraction", "data"),
        xytext=(-2, 5),
        textcoords="offset points",
        ha="right",
        fontsize=9,
        color=INK,
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 1},
    )
    panel.set_xticks(range(len(rows)), [_named(row.policy, row.checkpoint_ms) for row in rows])
    panel.set_ylabel("documents per second")
    panel.set_ylim(0, 1.12 * max([floor, *(row.documents_per_s for row in rows)]))
    panel.set_title(f"{throughputs.documents} documents, {throughputs.nodes} nodes")
    dress_bars(panel)
    save(figure, path)


def _draw_legend(figure: "Figure", colours: Mapping[str, str]) -> None:
    from matplotlib.artist import Artist
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    entries: list[Artist] = [
        Patch(color=colour, label=policy) for policy, colour in colours.items()
    ]
    entries.append(Line2D([], [], color=INK, linestyle="--", linewidth=1.2, label="floor"))
    columns = min(len(entries), round(figure.get_figwidth() / 1.6))
    figure.legend(handles=entries, loc="outside lower center", ncols=columns, frameon=False)


def _draw_bars(panel: "Axes", rows: Sequence[LatencyRow], colours: Mapping[str, str]) -> None:
    """Draw a group per percentile with a bar per policy; logarithmic, as policies differ by far."""
    width = GROUP / max(1, len(rows))
    policies = list(colours)
    for i, row in enumerate(sorted(rows, key=lambda row: policies.index(row.policy))):
        left = -GROUP / 2 + (i + 0.5) * width
        panel.bar(
            [group + left for group in range(len(SHOWN))],
            [getattr(row, name) for name in SHOWN],
            width=0.92 * width,
            color=colours[row.policy],
            zorder=2,
        )
    scale_by_decades(panel)
    panel.set_xticks(range(len(SHOWN)), list(SHOWN.values()))
    dress_bars(panel)


def _draw_floor(panel: "Axes", latencies: Latencies) -> None:
    """Draw the floor: a line across the group of each percentile."""
    panel.hlines(
        [latencies.floor.latency[name] for name in SHOWN],
        [group - 0.5 for group in range(len(SHOWN))],
        [group + 0.5 for group in range(len(SHOWN))],
        colors=INK,
        linestyles="--",
        linewidth=1.2,
        zorder=3,
    )
    panel.set_xlim(-0.5, len(SHOWN) - 0.5)


def _named(policy: str, checkpoint_ms: int | None) -> str:
    return policy if checkpoint_ms is None else f"{policy}\n{checkpoint_ms} ms"
