"""The master treats work as lost only if no member is working on it."""

from __future__ import annotations

import pytest

from driftline.coordinator.coordinator import Phase
from driftline.coordinator.registry import ClusterState
from driftline.deploy.roles.master import (
    STALL_LOG_DELAY_ENDING_S,
    STALL_LOG_INTERVAL_ENDING_S,
    STALLED_AFTER_S,
    Master,
)
from driftline.engine.errors import Unavailable
from driftline.engine.flow.plan import make_plan
from driftline.engine.labels import INFINITY
from driftline.engine.policy import get_policy
from driftline.engine.wire.messages import (
    Alive,
    EndOfInput,
    Hello,
    Message,
    NodeProgress,
    encode,
)
from driftline.engine.wire.role import COUNT_BITS
from driftline.simulation.scenarios.flows import two_fronts

MEMBERS = ("node-0", "front-0", "front-1")


class RunningMaster:
    """Master in phase RUNNING, whose node has unprocessed work unless `idle`."""

    def __init__(self, *, idle: bool = False) -> None:
        self.master = Master(
            1, make_plan(two_fronts), get_policy("exactly-once"), ClusterState("me"), 60.0
        )
        self.now = 1.0
        self.obstacle: dict[str, str] = {}
        """Member -> the obstacle outside the run that it waits for."""
        self.send_from_all(Hello, incarnation=0)
        [job] = self.master.jobs
        self.master.jobs.clear()
        self.master.on_job_done(job, None)
        self.send_from_all(Hello, incarnation=1)
        assert self.master.coordinator.phase is Phase.RUNNING
        if idle:
            return
        self.report(NodeProgress(5, 5, 9, (5, 1), 0))

    def send_from_all(
        self, kind: type[Message], incarnation: int = 1, silent: tuple[str, ...] = ()
    ) -> None:
        for name in MEMBERS:
            if name not in silent:
                hello = Hello(name, name, incarnation, 1, self.obstacle.get(name, ""))
                self.master.receive(encode((name, incarnation, self.master.epoch), hello))

    def report(self, reached: NodeProgress) -> None:
        """Send the node's progress to the master."""
        self.master.receive(encode(("node-0", 1, (1 << COUNT_BITS) + 1), reached))

    def recoveries_after(
        self, seconds: float, alive: Alive | None = None, silent: tuple[str, ...] = ()
    ) -> int:
        until = self.now + seconds
        while self.now < until:
            self.now += 0.2
            self.send_from_all(Hello, silent=silent)
            if alive is not None:
                self.master.receive(encode(("node-0", 1, 0), alive))
                alive = Alive(alive.process, alive.steps + (not alive.busy), alive.busy)
            self.master.now = self.now
            self.master.tick(self.now)
        return self.master.coordinator.recoveries


def test_stalled_work_without_an_active_node_triggers_recovery() -> None:
    assert RunningMaster().recoveries_after(STALLED_AFTER_S + 1) == 1


def test_work_in_a_busy_node_triggers_no_recovery() -> None:
    assert RunningMaster().recoveries_after(5 * STALLED_AFTER_S, Alive("node-0", 3, 1)) == 0


def test_work_in_a_progressing_node_triggers_no_recovery() -> None:
    assert RunningMaster().recoveries_after(5 * STALLED_AFTER_S, Alive("node-0", 3, 0)) == 0


def test_stalled_work_with_a_silent_node_triggers_no_recovery() -> None:
    running = RunningMaster()
    assert running.recoveries_after(1.0) == 0
    running.master.coordinator.members._leases["node-0"].timeout_s = 60.0
    assert running.recoveries_after(2 * STALLED_AFTER_S, silent=("node-0",)) == 0


def stall_messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [text for text in caplog.messages if text.startswith("no progress")]


def test_stall_message_names_the_full_disk(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The nodes have processed all input, but the input log is not durable."""
    running = RunningMaster(idle=True)
    full = "intake-0 cannot write records to its input log: input log /disk/a: full"
    running.obstacle = {"front-0": full}
    running.report(NodeProgress(4, 4, 9, (), 1))
    running.recoveries_after(15.0)
    assert stall_messages(caplog) == [f"no progress for 10 s: {full}; running"]
    assert running.master._all_obstacles == (full,)
    running.obstacle = {}
    running.send_from_all(Hello)
    assert not running.master._all_obstacles


def test_idle_run_is_not_reported_as_stalled(
    caplog: pytest.LogCaptureFixture,
) -> None:
    running = RunningMaster(idle=True)
    running.obstacle = {"node-0": "node-0 cannot write its part of a snapshot: /disk: full"}
    running.recoveries_after(15.0)
    assert stall_messages(caplog) == []


def test_stopping_run_logs_what_the_shutdown_waits_for(
    caplog: pytest.LogCaptureFixture,
) -> None:
    running = RunningMaster(idle=True)
    full = "node-0 cannot write its part of a snapshot: /disk: full"
    running.obstacle = {"node-0": full}
    running.recoveries_after(20.0)
    for index in (0, 1):
        end = EndOfInput(INFINITY, 0, 1)
        running.master.receive(encode((f"front-{index}", 1, (1 << COUNT_BITS) + 1), end))
    running.recoveries_after(STALL_LOG_DELAY_ENDING_S + 1)
    (line,) = stall_messages(caplog)
    assert line.startswith(f"no progress for 3 s: {full}; running, and asked to end (a second")
    caplog.clear()
    running.recoveries_after(10 * STALL_LOG_INTERVAL_ENDING_S)
    assert len(stall_messages(caplog)) >= 10, "stall lines become rarer over time"


def test_unwritable_outcome_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    running = RunningMaster(idle=True)
    running.master.coordinator.stop()
    running.master.tick(running.now)
    [job] = running.master.jobs
    running.master.jobs.clear()
    running.master.on_job_done(job, Unavailable("registry in directory /disk: full"))
    running.recoveries_after(15.0)
    full = "master cannot write the registry: registry in directory /disk: full"
    assert stall_messages(caplog) == [f"no progress for 10 s: {full}; writing how the run ended"]
