"""The children of a service, as they hang, and as it ends."""

from __future__ import annotations

import logging
import subprocess
import sys
from functools import partial
from signal import SIGKILL
from time import monotonic

import pytest

from driftline.deploy.runtime.children.launched import Launched
from driftline.deploy.runtime.children.statuses import STOPPED
from driftline.deploy.runtime.config import ProcessConfig
from driftline.serve.hosting.children import FINISH_S, PATIENCE_S, SILENT_S, Children
from driftline.serve.hosting.config import ServiceConfig, ViewSpec

TAKES_NO_NOTICE_YET = f"""
import os, signal
def end(*_): os._exit({STOPPED})
signal.signal(signal.SIGTERM, lambda *_: signal.signal(signal.SIGTERM, end))
print("ready", flush=True)
while True:
    signal.pause()
"""
"""A process as a view is that starts: the first signal does nothing."""


SLEEPS = "import signal; print('ready', flush=True); signal.pause()"

CONFIG = ServiceConfig(
    ProcessConfig(*("", 1, "", "", 1.0, ""), "", *("", "", False)), "", (ViewSpec("documents", ""),)
)

VIEW = "documents-0"


class Started:
    """The processes that were started, by their names."""

    def __init__(self, program: str) -> None:
        self.by_name: dict[str, subprocess.Popen[bytes]] = {}
        self._program = program

    def __call__(self, config: ServiceConfig) -> Launched:
        return Launched(config.name, partial(self._popen, config.name))

    def _popen(self, name: str, lifeline: int, stdout: int, stderr: int) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", self._program]
        self.by_name[name] = made = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr)
        assert made.stdout is not None
        with made.stdout:
            assert made.stdout.readline() == b"ready\n"
        return made


def test_a_view_that_takes_no_notice_yet_is_asked_to_end_again() -> None:
    started = Started(TAKES_NO_NOTICE_YET)
    with Children(CONFIG, started) as children:
        began = monotonic()
        children.finish()
        assert started.by_name[VIEW].poll() == STOPPED
        assert monotonic() - began < FINISH_S


def test_a_child_that_hangs_is_told_of_killed_and_started_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    started = Started(SLEEPS)

    def look(silent_s: float) -> str:
        """What is told meanwhile."""
        caplog.clear()
        children.supervise(lambda name, started: silent_s if name == VIEW else 0.0)
        return caplog.text

    with caplog.at_level(logging.INFO), Children(CONFIG, started) as children:
        assert not look(SILENT_S - 1)
        assert f"{VIEW} (pid {children.pids[VIEW]}) has been silent for 5 s" in look(SILENT_S)
        assert not look(SILENT_S + 1), "it was told once"
        assert not look(0.0)
        first = started.by_name[VIEW]
        assert "it is killed" in look(PATIENCE_S)
        assert first.wait() == -SIGKILL
        assert "was killed; it is started again" in look(0.0)
        while children.pids[VIEW] == first.pid:
            look(0.0)
        assert "after 30 s it is killed" in look(PATIENCE_S), "the next one is given more time"
        assert "it is killed" in look(2 * PATIENCE_S)
        assert started.by_name[VIEW].wait() == -SIGKILL
        assert children.restarts == 1
