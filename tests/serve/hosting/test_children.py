"""The children of a service, as it ends."""

from __future__ import annotations

import logging
import subprocess
import sys
from time import monotonic
from types import SimpleNamespace

import pytest

from driftline.deploy.host.statuses import STOPPED
from driftline.serve.hosting.children import FINISH_S, PATIENCE_S, SILENT_S, Children

TAKES_NO_NOTICE_YET = f"""
import os, signal
def end(*_): os._exit({STOPPED})
signal.signal(signal.SIGTERM, lambda *_: signal.signal(signal.SIGTERM, end))
print("ready", flush=True)
while True:
    signal.pause()
"""
"""A process as a view is that starts: the first signal does nothing."""


def test_a_view_that_takes_no_notice_yet_is_asked_to_end_again() -> None:
    view = subprocess.Popen([sys.executable, "-c", TAKES_NO_NOTICE_YET], stdout=subprocess.PIPE)
    assert view.stdout is not None
    assert view.stdout.readline() == b"ready\n"
    children = Children.__new__(Children)
    children._running = {"documents-0": SimpleNamespace(process=view)}  # type: ignore[dict-item]
    began = monotonic()
    children.finish()
    assert view.poll() == STOPPED
    assert monotonic() - began < FINISH_S
    view.stdout.close()


class Child:
    """A process that runs until it is killed."""

    def __init__(self) -> None:
        self.pid = 7
        self.killed = 0
        self.process = self

    def poll(self) -> None:
        """It runs."""

    def kill(self) -> None:
        self.killed += 1


def test_a_child_that_hangs_is_told_of_and_killed(caplog: pytest.LogCaptureFixture) -> None:
    child, children = Child(), Children.__new__(Children)
    children.ending = False
    children._exits = SimpleNamespace(news=False)  # type: ignore[assignment]
    children._running = {"documents-0": child}  # type: ignore[dict-item]
    children._started_at, children._start_at = {"documents-0": 1.0}, {}
    children._patience, children._told, children._killed = {}, set(), set()

    def look(silent_s: float) -> tuple[int, int]:
        """How many lines were written, and how often it was killed, meanwhile."""
        caplog.clear()
        before = child.killed
        children.supervise(lambda name, started: silent_s)
        return len(caplog.records), child.killed - before

    with caplog.at_level(logging.WARNING):
        assert look(SILENT_S - 1) == (0, 0)
        assert look(SILENT_S) == (1, 0)
        assert look(SILENT_S + 1) == (0, 0), "it was told once"
        assert look(0.0) == (0, 0)
        assert look(PATIENCE_S) == (1, 1)
        assert look(0.0) == (0, 0)
        assert look(PATIENCE_S) == (1, 0), "the next one is given more time"
        assert look(2 * PATIENCE_S) == (1, 1)
