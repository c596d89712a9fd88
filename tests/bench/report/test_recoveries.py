"""Recoveries: medians of the trials; what was lost is an error; the picture has all latencies."""

import json
from io import StringIO
from pathlib import Path

import pytest
from matplotlib.figure import Figure
from rich.console import Console

from driftline.bench.report import recoveries
from driftline.bench.report.recoveries import (
    Recovery,
    RecoveryRow,
    as_json,
    draw,
    table,
    wrong_recoveries,
)


def row(killed: str, spares: int, *firsts: float, lost: int = 0) -> RecoveryRow:
    latencies = [(-0.5, 3.0), (0.0, 80.0), (0.5, 4.0), (9.0, 4.0)]
    trials = [Recovery(ms, ms / 10, ms / 2, ms / 4, ms / 8, lost, 0, latencies) for ms in firsts]
    return RecoveryRow(killed, spares, trials)


def shown(rows: list[RecoveryRow]) -> str:
    console = Console(file=StringIO(), width=140)
    console.print(table(rows, 50, 1000))
    assert isinstance(console.file, StringIO)
    return " ".join(console.file.getvalue().split())


def test_a_row_has_the_medians_of_its_trials_and_the_longest() -> None:
    written = json.loads(json.dumps(as_json([row("node", 1, 80.0, 400.0, 120.0)], 50.0, 1000)))
    assert (written["rate"], written["checkpoint_ms"]) == (50, 1000)
    [found] = written["rows"]
    runs = found.pop("runs")
    assert found == {
        "killed": "node", "spares": 1, "trials": 3,
        "first_output_ms": {"p50": 120, "max": 400},
        "detection_ms": 12, "restart_ms": 60, "restore_ms": 30, "replay_ms": 15,
        "lost": 0, "duplicated": 0,
    }  # fmt: skip
    assert [run["first_output_ms"] for run in runs] == [80, 400, 120]
    assert "node 1 3 120 400 12.0 60.0 30.0 15.0" in shown([row("node", 1, 80.0, 400.0, 120.0)])


def test_what_a_recovery_has_lost_is_told_and_not_called_checked() -> None:
    right, wrong = row("node", 0, 80.0), row("all", 1, 90.0, lost=2)
    assert wrong_recoveries([right]) == []
    assert [text[:40] for text in wrong_recoveries([right, wrong])] == [
        "all, 1 spare: 2 outputs lost, and 0 came"
    ]
    assert "no output was lost" in shown([right])
    assert "no output was lost" not in shown([right, wrong])


def test_the_picture_shows_the_documents_around_the_kill(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Figure] = []
    monkeypatch.setattr(recoveries, "save", lambda figure, path: drawn.append(figure))
    rows = [row("node", 0, 80.0), row("node", 1, 40.0, 50.0), row("all", 0, 300.0)]
    draw(rows, 50, 1000, Path("recovery.png"))
    node, everything = drawn[0].axes
    assert [panel.get_title() for panel in (node, everything)] == ["kill -9: node", "kill -9: all"]
    assert [len(points.get_offsets()) for points in node.collections] == [3, 6]  # type: ignore[arg-type]
    assert node.get_legend() is not None
