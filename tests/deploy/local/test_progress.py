"""All figures of a progress line are of the same moment, under every policy."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from rich.console import Console

from driftline.coordinator.coordinator import Phase
from driftline.deploy.local.progress import ANSWER_TIMEOUT_S, LOG_INTERVAL_S, RunProgress
from driftline.deploy.roles.status_poller import StatusPoller
from driftline.engine.sources import ListSource
from driftline.engine.ui.consoles import ProgressView
from driftline.engine.wire.messages import StatusReport, encode
from tests.deploy.local.inputs.test_input_progress import InputOfOneCall


class LoggedProgress:
    """Progress of a run over a list, logged without a terminal."""

    def __init__(self, output: Path) -> None:
        self.call = InputOfOneCall(ListSource(list(range(100))), 1)
        self.call.begin(1)
        self.poller = StatusPoller()
        self.poller.addresses |= {
            "master": "ipc://master",
            "node-0": "ipc://0",
            "node-1": "ipc://1",
        }
        self.progress = RunProgress([self.call.tally], [], output)
        self.view = ProgressView(Console(force_terminal=False), ["in"])

    def show(self, now: float) -> None:
        self.call.front.now = now
        self.progress.show_if_due(now, self.poller, self.view)

    def answer(self, now: float, name: str, outputs: int = 0) -> None:
        self.poller.now = now
        report = StatusReport((("outputs", outputs),), Phase.RUNNING.value, "", ())
        self.poller.receive(encode((name, 0, 0), report))


@pytest.fixture
def progress(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> LoggedProgress:
    caplog.set_level(logging.INFO)
    return LoggedProgress(tmp_path)


def test_progress_line_shows_records_and_outputs_of_one_moment(
    progress: LoggedProgress, caplog: pytest.LogCaptureFixture
) -> None:
    progress.show(0.0)
    for name in ("node-0", "node-1"):
        progress.answer(LOG_INTERVAL_S - 1, name, 10)
    progress.show(LOG_INTERVAL_S)
    progress.answer(LOG_INTERVAL_S, "master")
    progress.answer(LOG_INTERVAL_S, "node-0", 50)
    progress.show(LOG_INTERVAL_S + 0.01)
    assert not caplog.messages, "the report of node-1 is a second old"
    progress.answer(LOG_INTERVAL_S + 0.02, "node-1", 45)
    progress.call.deliver(96)
    progress.show(LOG_INTERVAL_S + 0.02)
    (line,) = caplog.messages
    assert line.startswith("100 records, 95 outputs, ")
    assert "5 undelivered" in line


def test_unresponsive_node_does_not_suppress_the_progress_line(
    progress: LoggedProgress, caplog: pytest.LogCaptureFixture
) -> None:
    progress.show(0.0)
    progress.show(LOG_INTERVAL_S)
    progress.answer(LOG_INTERVAL_S, "node-0", 50)
    progress.show(LOG_INTERVAL_S + ANSWER_TIMEOUT_S / 2)
    assert not caplog.messages
    progress.show(LOG_INTERVAL_S + ANSWER_TIMEOUT_S)
    assert len(caplog.messages) == 1
    progress.show(LOG_INTERVAL_S + 2 * ANSWER_TIMEOUT_S)
    assert len(caplog.messages) == 1, "the next line is due in ten seconds"


def test_progress_line_names_the_source_that_holds_back_the_watermark(
    progress: LoggedProgress, caplog: pytest.LogCaptureFixture
) -> None:
    sources = ("clicks", 2_000_000, 0, 1000), ("views", 1_000_000, 0, 90_000)
    report = StatusReport(
        (), "running", "", (), sources=sources, operators=(("per minute", 1_000_000, "views"),)
    )
    progress.poller.receive(encode(("node-0", 0, 0), report))
    progress.show(0.0)
    progress.show(LOG_INTERVAL_S)
    progress.show(LOG_INTERVAL_S + ANSWER_TIMEOUT_S)
    (line,) = caplog.messages
    held = "watermark 1970-01-01T00:00:01Z (held back by views, unmoved for 90 s)"
    assert line.split("; ")[2] == held
