"""When children are restarted or given up, and which silent ones are killed."""

from __future__ import annotations

import os
import signal
from contextlib import closing
from math import inf

import pytest

from driftline.deploy.runtime.supervision.lifeline import READ_BYTES, KeepAlive, keep_alive
from driftline.deploy.runtime.supervision.restarts import (
    CRASHES_MAX,
    LONG_LIFE_S,
    PAUSE_S_MAX,
    SILENCE_TIMEOUT_S,
    HangDetector,
    RestartPolicy,
    RunningProcess,
    describe_exit,
)


def test_first_restart_is_immediate_and_later_ones_back_off() -> None:
    crashes = RestartPolicy(limit=5)
    starts = [crashes.record_crash("node-0", now=10.0) for _ in range(5)]
    assert starts == [10.0, 10.1, 10.2, 10.4, None]
    for_ever = RestartPolicy(inf)
    assert [for_ever.record_crash("view", now=0.0) for _ in range(2000)][-1] == PAUSE_S_MAX


def test_crash_count_resets_once_in_flight_records_are_completed() -> None:
    crashes = RestartPolicy(limit=3)
    crashes.record_progress(completed=5, sent=9)
    assert crashes.record_crash("node-0", 1.0) == 1.0
    for completed in (0, 5, 8, 9):  # a replay; then records before the one that crashes the process
        crashes.record_progress(completed, sent=20)
    assert crashes.record_crash("node-0", 1.0) == 1.1
    crashes.record_progress(completed=10, sent=20)
    assert crashes.record_crash("node-0", 1.0) == 1.0
    assert crashes.record_crash("node-0", 1.0) == 1.1
    assert crashes.record_crash("node-0", 1.0) is None


def test_crashes_far_apart_are_not_a_crash_loop() -> None:
    crashes = RestartPolicy()
    for day in range(2 * CRASHES_MAX):
        now = day * 2 * LONG_LIFE_S
        crashes.record_start("node-0", now)
        assert crashes.record_crash("node-0", now + LONG_LIFE_S + 1) is not None


def test_process_that_died_twice_handles_in_flight_records_carefully() -> None:
    crashes, last_chance = RestartPolicy(), RestartPolicy(limit=2)
    crashes.record_progress(completed=5, sent=9)
    assert crashes.find_suspect_times("node-0") == (-1, -1)
    for policy in (crashes, last_chance):
        policy.record_crash("node-0", 1.0)
    assert crashes.find_suspect_times("node-0") == (-1, -1)
    assert last_chance.find_suspect_times("node-0") == (0, 0)
    crashes.record_progress(completed=7, sent=20)
    crashes.record_crash("node-0", 2.0)
    assert (crashes.find_suspect_times("node-0"), crashes.find_suspect_times("node-1")) == (
        (7, 9),
        (-1, -1),
    )
    crashes.record_progress(completed=10, sent=20)
    assert crashes.find_suspect_times("node-0") == (-1, -1)


def test_step_down_without_progress_counts_as_futile() -> None:
    crashes = RestartPolicy()
    crashes.record_progress(completed=5, sent=9)
    counts = []
    for completed in (5, 5, 5, 6, 6):
        crashes.record_progress(completed, sent=9)
        crashes.record_step_down("master-0")
        counts.append(crashes.count_futile_step_downs("master-0"))
    assert counts == [0, 1, 2, 0, 1]
    assert crashes.count_futile_step_downs("master-1") == 0


@pytest.mark.parametrize(
    ("status", "expected_text"),
    [
        (-signal.SIGKILL, "SIGKILL (out of memory?"),
        (-signal.SIGSEGV, "SIGSEGV"),
        (-signal.SIGBUS, "SIGBUS"),
        (-63, "signal 63"),
        (0, "status 0"),
        (1, "status 1"),
    ],
)
def test_exit_status_is_described(status: int, expected_text: str) -> None:
    assert expected_text in describe_exit(status)


MISSING_S = 5.0


class SimulatedSupervisor:
    """Supervisor of two children that send signs of life only when a test says so."""

    def __init__(self) -> None:
        self.detector = HangDetector(MISSING_S)
        self.running = {"master": RunningProcess("m1", 11), "node-0": RunningProcess("n1", 12)}
        self.crashes = 0
        self.now = 1000.0
        self.killed: list[tuple[str, float]] = []
        """(child, seconds until it was killed)"""

    def pass_time(self, seconds: float, *speaking: str) -> None:
        began = self.now
        while self.now < began + seconds:
            self.now += 0.5
            for name in speaking:
                self.detector.record_sign(name, self.running[name].token, self.now)
            due = self.detector.find_hung(self.now, self.running, lambda name: self.crashes)
            self.killed += [(name, self.now - began) for name in due]


def test_silent_child_is_reported_then_killed_once(caplog: pytest.LogCaptureFixture) -> None:
    for name, other in (("master", "node-0"), ("node-0", "master")):
        supervisor = SimulatedSupervisor()
        supervisor.pass_time(1.0, name, other)
        supervisor.pass_time(MISSING_S + SILENCE_TIMEOUT_S, other)
        assert supervisor.killed == []
        supervisor.pass_time(60.0, other)
        assert supervisor.killed == [(name, 0.5)]
    assert any("kill -CONT 11" in text for text in caplog.messages)


def test_child_without_a_first_sign_may_be_starting() -> None:
    supervisor = SimulatedSupervisor()
    supervisor.pass_time(100 * SILENCE_TIMEOUT_S, "master")
    assert supervisor.killed == []
    supervisor.pass_time(1.0, "master", "node-0")
    supervisor.running["node-0"] = RunningProcess("n2", 13)
    supervisor.pass_time(100 * SILENCE_TIMEOUT_S, "master")
    assert supervisor.killed == [], "signs of life of the earlier process do not count"


def test_time_while_the_machine_was_suspended_does_not_count() -> None:
    supervisor = SimulatedSupervisor()
    supervisor.pass_time(1.0, "master", "node-0")
    for _ in range(5):
        supervisor.now += 3600.0
        supervisor.pass_time(MISSING_S / 2)
    assert supervisor.killed == []
    supervisor.pass_time(SILENCE_TIMEOUT_S)
    assert {name for name, _ in supervisor.killed} == {"master", "node-0"}


def test_deaths_without_progress_extend_the_silence_timeout() -> None:
    supervisor = SimulatedSupervisor()
    supervisor.crashes = 2
    supervisor.pass_time(1.0, "master", "node-0")
    supervisor.pass_time(MISSING_S + 4 * SILENCE_TIMEOUT_S, "master")
    assert supervisor.killed == []
    supervisor.pass_time(1.0, "master")
    assert [name for name, _ in supervisor.killed] == ["node-0"]


def test_unread_keep_alive_pipe_does_not_block() -> None:
    with closing(KeepAlive()) as pipe:
        os.set_blocking(pipe.fd, False)
        assert not pipe.has_new_sign()
        for _ in range(READ_BYTES + 10):
            keep_alive(pipe.fd)
        assert pipe.has_new_sign()
        assert not pipe.has_new_sign()
        pipe.close()
        keep_alive(pipe.fd)
        pipe.on_child_started()
