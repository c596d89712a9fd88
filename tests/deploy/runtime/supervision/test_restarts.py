"""Which children are restarted, when, and when no more; which are killed for their silence."""

from __future__ import annotations

import os
import signal
from contextlib import closing
from math import inf

import pytest

from driftline.deploy.runtime.supervision.lifeline import READ_BYTES, KeepAlive, keep_alive
from driftline.deploy.runtime.supervision.restarts import (
    DEATHS_MAX,
    LONG_LIFE_S,
    PATIENCE_S,
    PAUSE_S_MAX,
    HangDetector,
    RestartPolicy,
    RunningProcess,
    how,
)


def test_the_first_start_again_is_at_once_and_the_others_wait_ever_longer() -> None:
    deaths = RestartPolicy(limit=5)
    starts = [deaths.died("node-0", now=10.0) for _ in range(5)]
    assert starts == [10.0, 10.1, 10.2, 10.4, None]
    for_ever = RestartPolicy(inf)
    assert [for_ever.died("view", now=0.0) for _ in range(2000)][-1] == PAUSE_S_MAX


def test_the_run_is_past_a_record_once_all_is_settled_that_was_under_way() -> None:
    deaths = RestartPolicy(limit=3)
    deaths.moved(settled=5, sent=9)
    assert deaths.died("node-0", 1.0) == 1.0
    for settled in (0, 5, 8, 9):  # a replay; then what was under way before the record that kills
        deaths.moved(settled, sent=20)
    assert deaths.died("node-0", 1.0) == 1.1
    deaths.moved(settled=10, sent=20)
    assert deaths.died("node-0", 1.0) == 1.0
    assert deaths.died("node-0", 1.0) == 1.1
    assert deaths.died("node-0", 1.0) is None


def test_each_process_has_deaths_of_its_own() -> None:
    deaths = RestartPolicy(limit=2)
    assert deaths.died("node-0", 1.0) == 1.0
    assert deaths.died("node-1", 1.0) == 1.0
    assert deaths.died("node-0", 1.0) is None


def test_deaths_that_lie_far_apart_are_no_loop() -> None:
    deaths = RestartPolicy()
    for day in range(2 * DEATHS_MAX):
        now = day * 2 * LONG_LIFE_S
        deaths.started("node-0", now)
        assert deaths.died("node-0", now + LONG_LIFE_S + 1) is not None


def test_who_has_died_is_careful_with_what_was_under_way() -> None:
    deaths = RestartPolicy()
    deaths.moved(settled=5, sent=9)
    assert deaths.careful("node-0") == (-1, -1)
    deaths.died("node-0", 1.0)
    deaths.moved(settled=7, sent=20)
    assert (deaths.careful("node-0"), deaths.careful("node-1")) == ((7, 9), (-1, -1))
    deaths.moved(settled=10, sent=20)
    assert deaths.careful("node-0") == (-1, -1)


def test_a_master_makes_way_in_vain_if_the_run_got_no_further_since_the_last_time() -> None:
    deaths = RestartPolicy()
    deaths.moved(settled=5, sent=9)
    counts = []
    for settled in (5, 5, 5, 6, 6):
        deaths.moved(settled, sent=9)
        deaths.made_way("master-0")
        counts.append(deaths.in_vain("master-0"))
    assert counts == [0, 1, 2, 0, 1]
    assert deaths.in_vain("master-1") == 0


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (-signal.SIGKILL, "SIGKILL (is there enough memory"),
        (-signal.SIGSEGV, "SIGSEGV"),
        (-signal.SIGBUS, "SIGBUS"),
        (-63, "signal 63"),
        (0, "status 0"),
        (1, "status 1"),
    ],
)
def test_a_death_is_told_in_words(status: int, said: str) -> None:
    assert said in how(status)


MISSING_S = 5.0


class Supervisor:
    """A supervisor of two children, which a test lets speak or be silent."""

    def __init__(self) -> None:
        self.detector = HangDetector(MISSING_S)
        self.running = {"master": RunningProcess("m1", 11), "node-0": RunningProcess("n1", 12)}
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
    supervisor.running["node-0"] = RunningProcess("n2", 13)
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
