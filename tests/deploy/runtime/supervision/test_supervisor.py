"""Who dies is started again, but not for ever; our own kills do not count."""

import random
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from math import inf

import pytest

from driftline.deploy.roles.status_poller import StatusPoller
from driftline.deploy.runtime.config import ProcessConfig
from driftline.deploy.runtime.loop.runtime import Runtime
from driftline.deploy.runtime.supervision.child_process import Pipes
from driftline.deploy.runtime.supervision.cluster import LocalCluster
from driftline.deploy.runtime.supervision.restarts import DEATHS_MAX, STOPPED, RunningProcess
from driftline.engine.errors import Unavailable


class Scripted(LocalCluster):
    """Processes that run a script."""

    def __init__(self, script: str) -> None:
        super().__init__(
            ProcessConfig(
                flow="driftline.index",
                nodes=1,
                policy="exactly-once",
                ordering="speculative",
                checkpoint_s=1.0,
                state="",
                sockets="",
                identity="",
                run="",
                dead_letters=False,
            )
        )
        self.script = script
        self.started: list[ProcessConfig] = []

    def _popen(self, config: ProcessConfig, pipes: Pipes) -> subprocess.Popen[bytes]:
        self.started.append(config)
        return subprocess.Popen(
            [sys.executable, "-c", self.script],
            stdin=subprocess.PIPE,
            stdout=pipes.stdout,
            stderr=pipes.stderr,
            pass_fds=[pipes.lifeline],
        )


def test_masters_that_make_way_in_vain_are_told_how_often() -> None:
    with Scripted("import sys; sys.exit(4)") as cluster:
        cluster.config = replace(cluster.config, zookeeper="somewhere")
        never = threading.Event()
        while cluster.restarts_of["master"] <= DEATHS_MAX:
            cluster.supervise()
            never.wait(0.02)
        told = [config.in_vain for config in cluster.started if config.role == "master"]
    assert told[:5] == [0, 0, 1, 2, 3]


def test_killing_it_on_purpose_does_not_count_as_dying_again_and_again() -> None:
    chance = random.Random(1)
    with Scripted("import time; time.sleep(60)") as cluster:
        for _ in range(6 * DEATHS_MAX):
            cluster.kill_one(chance)
            cluster.supervise()
        assert cluster.kills == cluster.restarts == 6 * DEATHS_MAX
        for process in cluster._processes.values():
            process.kill()


@pytest.mark.parametrize(
    ("script", "how"),
    [
        ("import sys; print('so it ends', file=sys.stderr); sys.exit(9)", "status 9"),
        ("import os, sys; print('so it ends', file=sys.stderr, flush=True); os._exit(0)", "exit"),
        ("import os, sys; print('so it ends', file=sys.stderr, flush=True); os.abort()", "SIGABRT"),
    ],
)
def test_what_dies_again_and_again_is_not_started_for_ever(
    script: str, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        Scripted(script) as cluster,
        pytest.raises(Unavailable, match=rf"died {DEATHS_MAX} times(.|\n)*{how}(.|\n)*so it ends"),
    ):
        supervise_for_ever(cluster)
    assert ("master", "so it ends") in [(r.processName, r.getMessage()) for r in caplog.records]


def test_progress_between_deaths_is_no_loop() -> None:
    with Scripted("raise SystemExit(9)") as cluster:
        for progress in range(1, 3 * DEATHS_MAX + 1):
            wait(cluster)
            cluster.supervise(progress, sent=progress)
            while cluster._start_at:
                cluster.supervise(progress, sent=progress)
        assert cluster.restarts >= 3 * DEATHS_MAX


def test_who_was_told_to_stop_is_not_started_again() -> None:
    with Scripted(f"raise SystemExit({STOPPED})") as cluster:
        wait(cluster)
        cluster.supervise()
        assert cluster.restarts == 0
        assert cluster.master_ended


def supervise_for_ever(cluster: LocalCluster, watch: StatusPoller | None = None) -> None:
    """A run that gets nowhere."""
    while True:
        if watch is None:
            wait(cluster)
        cluster.supervise(7, 9, watch)


def test_a_death_wakes_the_loop_and_its_successor_starts_in_the_same_look() -> None:
    runtime = Runtime()
    idle = StatusPoller(every_s=inf)
    runtime.add(idle, f"inproc://{idle.name}")
    with Scripted("import time; time.sleep(60)") as cluster:
        cluster.wake(runtime)
        runtime.step(wait_s=0.0)
        first = cluster.pids
        cluster._processes["node-0"].kill()
        runtime.step(wait_s=60.0)  # one step: nobody looks meanwhile
        cluster._look_at = inf
        assert cluster.is_due(0.0)
        cluster.supervise()
        assert cluster.pids["node-0"] != first["node-0"]
        assert cluster.pids["master"] == first["master"]
        for process in cluster._processes.values():
            process.kill()
    runtime.close(linger_ms=0)


def test_a_master_that_has_ended_is_asked_again_once() -> None:
    """It can tell, by the registry, what the one before it did not."""
    with Scripted(f"raise SystemExit({STOPPED})") as cluster:
        wait(cluster)
        assert cluster.nodes_ended
        first = cluster.pids
        cluster.ask_again()
        assert cluster.pids["master"] != first["master"]
        assert cluster.pids["node-0"] == first["node-0"]
        with pytest.raises(Unavailable, match="without recording an outcome"):
            cluster.ask_again()


def wait(cluster: LocalCluster) -> None:
    """Until all processes are dead."""
    for process in cluster._processes.values():
        process.wait()


def test_a_process_is_not_replaced_before_it_has_ended(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The kernel may hold it, for a disk that does not answer."""
    with Scripted("import time; time.sleep(60)") as cluster:
        asked = [["node-0"], []]
        monkeypatch.setattr(cluster._hangs, "look", lambda *_: asked.pop(0) if asked else [])
        node = cluster._processes["node-0"]
        really_kill = node.kill
        monkeypatch.setattr(node, "kill", lambda: None)
        for _ in range(3):
            cluster.supervise()
        assert cluster.pids["node-0"] == node.pid
        really_kill()
        node.wait()
        cluster.supervise()
        assert cluster.pids["node-0"] != node.pid
        assert "ended by SIGKILL, as it was silent; it is started again" in caplog.text
        for process in cluster._processes.values():
            process.kill()


def test_who_is_killed_for_silence_again_and_again_ends_the_run_and_gets_more_time_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    deaths = []

    def look(
        now: float, running: Mapping[str, RunningProcess], count: Callable[[str], int]
    ) -> list[str]:
        deaths.append(count("node-0"))
        return ["node-0"] if "node-0" in running else []

    with Scripted("import time; time.sleep(60)") as cluster:
        monkeypatch.setattr(cluster._hangs, "look", look)
        with pytest.raises(Unavailable, match=rf"died {DEATHS_MAX} times(.|\n)*as it was silent"):
            supervise_for_ever(cluster, StatusPoller())
        assert set(deaths) == set(range(DEATHS_MAX))
        cluster._processes["master"].kill()
