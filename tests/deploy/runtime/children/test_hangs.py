"""Which children are killed because nothing is heard of them, and which are not."""

from __future__ import annotations

import os
from contextlib import closing

import pytest

from driftline.deploy.runtime.children.hangs import PATIENCE_S, HangDetector, Running
from driftline.deploy.runtime.children.lifeline import READ_BYTES, KeepAlive, keep_alive

MISSING_S = 5.0


class Supervisor:
    """A supervisor of two children, which a test lets speak or be silent."""

    def __init__(self) -> None:
        self.detector = HangDetector(MISSING_S)
        self.running = {"master": Running("m1", 11), "node-0": Running("n1", 12)}
        self.deaths = 0
        self.now = 1000.0
        self.killed: list[tuple[str, float]] = []
        """(child, after how many seconds it was killed)"""

    def pass_time(self, seconds: float, *speaking: str) -> None:
        began = self.now
        while self.now < began + seconds:
            self.now += 0.5
            for name in speaking:
                self.detector.heard(name, self.running[name].process, self.now)
            due = self.detector.look(self.now, self.running, lambda name: self.deaths)
            self.killed += [(name, self.now - began) for name in due]


def test_a_silent_child_is_missed_then_killed_once(caplog: pytest.LogCaptureFixture) -> None:
    for name, other in (("master", "node-0"), ("node-0", "master")):
        supervisor = Supervisor()
        supervisor.pass_time(1.0, name, other)
        supervisor.pass_time(MISSING_S + PATIENCE_S, other)
        assert supervisor.killed == []
        supervisor.pass_time(60.0, other)
        assert supervisor.killed == [(name, 0.5)]
    assert any("kill -CONT 11" in text for text in caplog.messages)


def test_a_child_that_speaks_again_in_time_is_not_killed() -> None:
    supervisor = Supervisor()
    for _ in range(5):
        supervisor.pass_time(1.0, "master", "node-0")
        supervisor.pass_time(MISSING_S + PATIENCE_S - 1, "master")
    supervisor.pass_time(1.0, "master", "node-0")
    assert supervisor.killed == []


def test_a_child_that_was_never_heard_may_be_starting() -> None:
    supervisor = Supervisor()
    supervisor.pass_time(100 * PATIENCE_S, "master")
    assert supervisor.killed == []
    supervisor.pass_time(1.0, "master", "node-0")
    supervisor.running["node-0"] = Running("n2", 13)
    supervisor.pass_time(100 * PATIENCE_S, "master")
    assert supervisor.killed == [], "what was heard of the process before does not count"


def test_time_in_which_the_whole_machine_stood_still_does_not_count() -> None:
    supervisor = Supervisor()
    supervisor.pass_time(1.0, "master", "node-0")
    for _ in range(5):
        supervisor.now += 3600.0
        supervisor.pass_time(MISSING_S / 2)
    assert supervisor.killed == []
    supervisor.pass_time(PATIENCE_S)
    assert {name for name, _ in supervisor.killed} == {"master", "node-0"}


def test_deaths_without_progress_give_more_time_to_a_function_that_keeps_the_lock() -> None:
    supervisor = Supervisor()
    supervisor.deaths = 2
    supervisor.pass_time(1.0, "master", "node-0")
    supervisor.pass_time(MISSING_S + 4 * PATIENCE_S, "master")
    assert supervisor.killed == []
    supervisor.pass_time(1.0, "master")
    assert [name for name, _ in supervisor.killed] == ["node-0"]


def test_a_keep_alive_that_nobody_reads_holds_nobody_up() -> None:
    with closing(KeepAlive()) as pipe:
        os.set_blocking(pipe.fd, False)
        assert not pipe.heard()
        for _ in range(READ_BYTES + 10):
            keep_alive(pipe.fd)
        assert pipe.heard()
        assert not pipe.heard()
        pipe.close()
        keep_alive(pipe.fd)
        pipe.started()
