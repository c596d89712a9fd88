"""Pictures: a policy has the same colour in all of them, whatever else is drawn."""

from pathlib import Path

import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from driftline.bench.measuring.meter import LatencyResult, ThroughputResult, percentiles
from driftline.bench.report import pictures
from driftline.bench.report.pictures import draw_latency, draw_throughput
from driftline.bench.report.rows import LatencyRow, ThroughputRow
from driftline.bench.report.tables import Latencies, Throughputs
from driftline.bench.systems.cases import CHOICES, FLOOR, REAL_TIME, Case
from driftline.engine.ui.pictures import colour_of_policy


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """The pictures that are drawn."""
    drawn: list[Figure] = []
    monkeypatch.setattr(pictures, "save", lambda figure, path: drawn.append(figure))
    return drawn


def bars_of(figures: list[Figure], *policies: str) -> dict[str, str]:
    rows = [ThroughputRow(Case(n, None), [ThroughputResult(1, 1, 1, 0, 0)]) for n in policies]
    draw_throughput(Throughputs(1, 2, rows), Path("bars.png"))
    (panel,) = figures.pop().axes
    return {
        name: to_hex(bar.get_facecolor()).upper()
        for name, bar in zip(policies, panel.patches, strict=True)
    }


def curves_of(figures: list[Figure], *policies: str) -> dict[str, str]:
    values = [1.0, 2.0, 3.0]
    run = LatencyResult(3, percentiles(values), percentiles(values), 0, 0, values, values)
    rows = [LatencyRow(Case(name, None), [run]) for name in policies]
    draw_latency(Latencies(100, 3, 2, rows), Path("curves.png"))
    (legend,) = figures.pop().legends
    return {
        text.get_text(): to_hex(line.get_color()).upper()
        for text, line in zip(legend.get_texts(), legend.get_lines(), strict=True)
    }


def test_a_policy_has_the_same_colour_in_every_picture(figures: list[Figure]) -> None:
    every = [FLOOR, *CHOICES, REAL_TIME]
    wanted = {name: colour_of_policy(name) for name in every}
    assert len(set(wanted.values())) == len(every)
    assert bars_of(figures, *every) == curves_of(figures, *every) == wanted
    some = ["exactly-once", FLOOR]
    assert bars_of(figures, *some) == curves_of(figures, *some) == {n: wanted[n] for n in some}
