"""A spare is started when nothing else is, takes its role at once or never, and is given up in the
end if it cannot be had."""

from __future__ import annotations

import logging
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from driftline.deploy.runtime.supervision.child_process import ChildProcess, Pipes
from driftline.deploy.runtime.supervision.restarts import DEATHS_MAX
from driftline.deploy.runtime.supervision.spares import CALM_S, SPARE, Spares

ROOT = Path(__file__).resolve().parents[4]

WAITS = """
import sys
from driftline.deploy.runtime.supervision.spares import await_role
text = await_role(int(sys.argv[1]))
print(f"it has become {text.strip()}" if text else "it is not needed", file=sys.stderr)
"""

CONFIG = '{"role": "node"}'


class Scripted:
    """Spares that run a script."""

    def __init__(self, script: str) -> None:
        self.script = script
        self.launched: list[ChildProcess] = []
        self.spares = Spares(1, self.launch)

    def launch(self, link: int) -> ChildProcess:
        def popen(pipes: Pipes) -> subprocess.Popen[bytes]:
            return subprocess.Popen(
                [sys.executable, "-c", self.script, str(link)],
                cwd=ROOT,
                stdout=pipes.stdout,
                stderr=pipes.stderr,
                pass_fds=[pipes.lifeline, link],
            )

        self.launched.append(ChildProcess(SPARE, popen))
        return self.launched[-1]

    def until_ready(self) -> None:
        self.spares.maintain(CALM_S)
        while not self.spares.ready_count:
            assert self.launched[-1].process.poll() is None
            select.select((), (), (), 0.01)


@pytest.fixture
def waiting() -> Iterator[Scripted]:
    scripted = Scripted(WAITS)
    yield scripted
    scripted.spares.stop()


def test_spare_takes_the_assigned_role_and_logs_under_its_name(
    waiting: Scripted, caplog: pytest.LogCaptureFixture
) -> None:
    waiting.until_ready()
    taken = waiting.spares.take("node-7", CONFIG)
    assert taken is waiting.launched[0]
    assert taken.process.wait(60) == 0
    taken.flush()
    taken.cut()
    said = f"it has become {CONFIG}"
    assert [(r.processName, r.getMessage()) for r in caplog.records] == [("node-7", said)]
    assert waiting.spares.take("node-8", CONFIG) is None, "it was one only"


def test_no_spare_is_started_before_the_run_is_calm(waiting: Scripted) -> None:
    waiting.spares.postpone_start(now=10.0)
    waiting.spares.maintain(10.0 + CALM_S - 0.1)
    assert not waiting.launched
    waiting.spares.maintain(10.0 + CALM_S)
    waiting.spares.maintain(10.0 + 2 * CALM_S)
    assert len(waiting.launched) == 1


def test_a_spare_that_does_not_answer_gets_no_role_and_is_replaced(
    waiting: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("driftline.deploy.runtime.supervision.spares.TAKE_TIMEOUT_S", 0.1)
    waiting.until_ready()
    [stopped] = waiting.launched
    os.kill(stopped.pid, signal.SIGSTOP)
    os.waitid(os.P_PID, stopped.pid, os.WSTOPPED | os.WNOWAIT)
    assert waiting.spares.take("node-0", CONFIG) is None
    assert stopped.process.wait(60) == -signal.SIGKILL
    waiting.until_ready()
    assert waiting.spares.take("node-0", CONFIG) is waiting.launched[1]
    waiting.launched[1].process.wait(60)


@pytest.mark.parametrize(("script", "most"), [("exit(9)", DEATHS_MAX), ("exit(2)", 1)])
def test_spares_that_die_again_and_again_or_cannot_start_are_given_up(
    script: str, most: int, caplog: pytest.LogCaptureFixture
) -> None:
    dying = Scripted(f"import sys; sys.{script}")
    for second in range(3 * DEATHS_MAX):
        dying.spares.maintain(CALM_S + second)
        dying.launched[-1].process.wait(60)
    assert len(dying.launched) == most
    told = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert len(told) == most
    assert ["there is none" in line for line in told] == [False] * (most - 1) + [True]
    assert dying.spares.take("node-0", CONFIG) is None
