"""Recoveries: medians of the trials; a lost output is an error; the picture has all latencies."""

from __future__ import annotations

import json
import logging
from io import StringIO
from pathlib import Path
from time import perf_counter

import pytest
from matplotlib.figure import Figure
from rich.console import Console

from driftline.bench.experiments import recovery
from driftline.bench.experiments.recovery import (
    Kill,
    RecoveryRow,
    draw_recovery,
    events_of_log,
    report_of,
)
from driftline.bench.experiments.report import ExperimentReport, Row
from driftline.engine.events import event_fields, log


def row(killed: str, spares: int, *firsts: float, lost: int = 0) -> RecoveryRow:
    points = [(-0.5, 3.0), (0.0, 80.0), (0.5, 4.0), (9.0, 4.0)]
    runs = [
        {
            "first_output_ms": ms,
            "detection_ms": ms / 10,
            "restart_ms": ms / 2,
            "restore_ms": ms / 4,
            "replay_ms": ms / 8,
            "lost": lost,
            "duplicated": 0,
        }
        for ms in firsts
    ]
    return Row(Kill(killed, spares), runs, samples={"latencies": points * len(runs)})


def shown(recoveries: ExperimentReport[Kill]) -> str:
    console = Console(file=StringIO(), width=140)
    console.print(*recoveries.tables())
    assert isinstance(console.file, StringIO)
    return " ".join(console.file.getvalue().split())


def test_a_row_has_the_medians_of_its_trials_and_the_longest() -> None:
    recoveries = report_of([row("node", 1, 80.0, 400.0, 120.0)], 50.0, 1000)
    written = json.loads(json.dumps(recoveries.as_json()))
    assert (written["rate"], written["checkpoint_ms"]) == (50, 1000)
    [found] = written["rows"]
    runs = found.pop("runs")
    assert found == {
        "killed": "node", "spares": 1, "first_output_ms": 120, "first_output_max_ms": 400,
        "detection_ms": 12, "restart_ms": 60, "restore_ms": 30, "replay_ms": 15,
        "lost": 0, "duplicated": 0,
    }  # fmt: skip
    assert [run["first_output_ms"] for run in runs] == [80, 400, 120]
    assert "node 1 120 400 12.0 60.0 30.0 15.0" in shown(recoveries)


def test_lost_output_is_reported_as_a_problem() -> None:
    right, wrong = row("node", 0, 80.0), row("all", 1, 90.0, lost=2)
    assert report_of([right], 50, 1000).problems() == []
    both = report_of([right, wrong], 50, 1000)
    assert [text[:44] for text in both.problems()] == [
        "all, 1 spare: 2 outputs are lost and 0 came "
    ]
    assert "no output was lost" in shown(report_of([right], 50, 1000))
    assert "no output was lost" not in shown(both)


def test_the_picture_shows_the_documents_around_the_kill(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Figure] = []
    monkeypatch.setattr(recovery, "save", lambda figure, path: drawn.append(figure))
    rows = [row("node", 0, 80.0), row("node", 1, 40.0, 50.0), row("all", 0, 300.0)]
    draw_recovery(report_of(rows, 50, 1000), Path("recovery.png"))
    node, everything = drawn[0].axes
    assert [panel.get_title() for panel in (node, everything)] == ["kill -9: node", "kill -9: all"]
    assert [len(points.get_offsets()) for points in node.collections] == [3, 6]  # type: ignore[arg-type]
    assert node.get_legend() is not None


def test_log_events_have_the_clock_of_meters(caplog: pytest.LogCaptureFixture) -> None:
    level = log.level
    with events_of_log() as events:
        before = perf_counter()
        log.info("first", extra=event_fields("load"))
        log.debug("not collected", extra=event_fields("load"))
        logging.getLogger("of.the.user").warning("load")
    [(name, at)] = events
    assert name == "load"
    assert before - 0.05 < at <= perf_counter() + 0.05
    assert (log.level, log.propagate) == (level, True)
    log.warning("as before")
    assert caplog.messages == ["load", "as before"]
