"""The picture: a panel for each kind of ends, and in each the colours of the policies."""

from pathlib import Path

import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from driftline.engine.ui.pictures import colour_of_policy
from driftline.pipeline.latency import picture
from driftline.pipeline.latency.analysis import PERCENTILES, Analysis, Series, Summary


def series(policy: str, checkpoint_ms: int | None, durable: bool) -> Series:
    summary = Summary(4, dict.fromkeys(PERCENTILES, 2.0), 0, 0)
    return Series(policy, checkpoint_ms, durable, summary, [(0.0, summary)], [(1, 2, 3), (2, 3, 1)])


def test_a_policy_has_its_colour_with_either_kind_of_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Figure] = []
    monkeypatch.setattr(picture, "save", lambda figure, path: drawn.append(figure))
    rows = [
        series("floor", None, False),
        series("two-phase", 50, False),
        series("exactly-once", 50, False),
        series("exactly-once", 1000, True),
    ]
    picture.draw_latency(Analysis(16, 1.0, rows), Path("latency.png"))
    (figure,) = drawn
    titles = {panel.get_title(): panel for panel in figure.axes if panel.get_title()}
    assert {
        title: [(line.get_label(), to_hex(line.get_color()).upper()) for line in panel.get_lines()]
        for title, panel in titles.items()
    } == {
        "inputs and outputs in memory": [
            ("floor", colour_of_policy("floor")),
            ("two-phase, 50 ms", colour_of_policy("two-phase")),
            ("exactly-once, 50 ms", colour_of_policy("exactly-once")),
        ],
        "inputs and outputs durable": [("exactly-once, 1000 ms", colour_of_policy("exactly-once"))],
    }
    assert all(panel.yaxis_inverted() for panel in titles.values()), "the largest are at the top"
