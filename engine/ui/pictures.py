"""Pictures in one style. matplotlib is optional, so only functions that draw import it."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from driftline.engine.errors import Unavailable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ENDINGS = (".png", ".svg", ".pdf")

# Palette of Okabe and Ito: its colours differ for colour-blind readers, and in greyscale.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442")
INK = "#333333"
POLICY_COLOURS = {
    "floor": "#888888",
    "none": "#E69F00",
    "at-least-once": "#009E73",
    "exactly-once": "#0072B2",
    "two-phase": "#D55E00",
    "strong-productions": "#CC79A7",
    "micro-batch": "#56B4E9",
}
"""Case of a benchmark -> its colour in all pictures. A case is a policy, `micro-batch` (Spark), or
`floor`, the same job without an engine."""

_GRID, _FINE_GRID = "#DDDDDD", "#F0F0F0"


def check_matplotlib() -> None:
    """Raise Unavailable if matplotlib is not installed."""
    if find_spec("matplotlib") is None:
        raise Unavailable("a picture needs matplotlib: pip install 'driftline[bench]'")


def new_figure(width: float, height: float) -> Figure:
    """Create a figure of this size in inches. Unlike `pyplot`, it needs no window system."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def colours_of(names: Iterable[str]) -> dict[str, str]:
    """Assign colours to names in the order in which the names first occur.

    Colours repeat if there are more names than COLOURS.
    """
    distinct = dict.fromkeys(names)
    return {name: COLOURS[i % len(COLOURS)] for i, name in enumerate(distinct)}


def colour_of_policy(name: str) -> str:
    """Return the colour of a case in POLICY_COLOURS; INK for other names."""
    return POLICY_COLOURS.get(name, INK)


def style_curves(panel: Axes) -> None:
    """Draw pale grid lines in both directions behind curves; hide the top and right borders."""
    panel.set_axisbelow(True)
    panel.grid(which="major", color=_GRID, linewidth=0.8)
    _hide_top_and_right_lines(panel)


def style_bars(panel: Axes) -> None:
    """Draw pale horizontal lines behind bars, at the major ticks and, finer, at the minor ones.

    Hide the ticks of the horizontal axis, and the top and right borders.
    """
    panel.set_axisbelow(True)
    panel.grid(axis="y", which="major", color=_GRID, linewidth=0.8)
    panel.grid(axis="y", which="minor", color=_FINE_GRID, linewidth=0.5)
    panel.tick_params(axis="x", length=0)
    _hide_top_and_right_lines(panel)


def _hide_top_and_right_lines(panel: Axes) -> None:
    panel.spines[["top", "right"]].set_visible(False)


def scale_by_decades(panel: Axes) -> None:
    """Make the vertical axis logarithmic, with ticks 0.1, 1, 10, ... as plain numbers."""
    panel.set_yscale("log")
    panel.yaxis.set_major_formatter("{x:g}")


def plain_log_scale(panel: Axes, horizontal: bool = False) -> None:
    """Make an axis logarithmic, with ticks 1, 2, 5, 10, 20, ... as plain numbers.

    `horizontal`: change the horizontal axis instead of the vertical one.
    """
    from matplotlib.ticker import LogLocator, NullLocator

    if horizontal:
        panel.set_xscale("log")
    else:
        panel.set_yscale("log")
    axis = panel.xaxis if horizontal else panel.yaxis
    axis.set_major_locator(LogLocator(subs=(1, 2, 5), numticks=40))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter("{x:g}")


def save(figure: Figure, path: Path) -> None:
    """Write a picture, in the format of the file name's ending."""
    figure.savefig(path, dpi=150)
