"""Exited processes are restarted a limited number of times; deliberate kills do not count."""

import random
import subprocess
import sys
import threading
from math import inf
from pathlib import Path

import pytest
from msgspec.structs import replace

from driftline.deploy.roles.status_poller import StatusPoller
from driftline.deploy.runtime.config import ProcessConfig
from driftline.deploy.runtime.loop.runtime import Runtime
from driftline.deploy.runtime.supervision.child_process import Pipes
from driftline.deploy.runtime.supervision.cluster import LocalCluster, remove_outdated
from driftline.deploy.runtime.supervision.restarts import CRASHES_MAX, STOPPED
from driftline.engine.errors import Unavailable


class ScriptCluster(LocalCluster):
    """Cluster whose processes run a script."""

    def __init__(self, script: str) -> None:
        super().__init__(
            ProcessConfig(
                flow="driftline.index",
                nodes=1,
                policy="exactly-once",
                ordering="speculative",
                snapshot_interval_s=1.0,
                state="",
                sockets="",
                identity="",
                run="",
                dead_letters=False,
            )
        )
        self.script = script
        self.started: list[ProcessConfig] = []

    def _fork(self, config: ProcessConfig, pipes: Pipes) -> subprocess.Popen[bytes]:
        self.started.append(config)
        process = subprocess.Popen(
            [sys.executable, "-c", self.script],
            stdin=subprocess.PIPE,
            stdout=pipes.stdout,
            stderr=pipes.stderr,
            pass_fds=[pipes.lifeline],
        )
        self._exits.watch(process.pid)
        return process


def test_restarted_master_receives_its_count_of_futile_step_downs() -> None:
    with ScriptCluster("import sys; sys.exit(4)") as cluster:
        cluster.config = replace(cluster.config, zookeeper="somewhere")
        never = threading.Event()
        while cluster.restarts_of["master"] <= CRASHES_MAX:
            cluster.supervise()
            never.wait(0.02)
        futile_step_downs = [
            config.futile_step_downs for config in cluster.started if config.role == "master"
        ]
    assert futile_step_downs[:5] == [0, 0, 1, 2, 3]


def test_deliberate_kills_do_not_count_as_a_crash_loop() -> None:
    chance = random.Random(1)
    with ScriptCluster("import time; time.sleep(60)") as cluster:
        for _ in range(2 * CRASHES_MAX):
            cluster.kill_one(chance)
            cluster.supervise()
        assert cluster.kills == cluster.restarts == 2 * CRASHES_MAX
        for process in cluster._processes.values():
            process.kill()


def test_crash_loop_ends_the_run(caplog: pytest.LogCaptureFixture) -> None:
    script = "import os, sys; print('so it ends', file=sys.stderr, flush=True); os.abort()"
    how = rf"died {CRASHES_MAX} times(.|\n)*SIGABRT(.|\n)*so it ends"
    with ScriptCluster(script) as cluster, pytest.raises(Unavailable, match=how):
        supervise_forever(cluster)
    assert ("master", "so it ends") in [(r.processName, r.getMessage()) for r in caplog.records]


def supervise_forever(cluster: LocalCluster) -> None:
    """Supervise a run that never makes progress."""
    while True:
        wait(cluster)
        cluster.supervise(7, 9)


def test_stopped_process_is_not_restarted() -> None:
    with ScriptCluster(f"raise SystemExit({STOPPED})") as cluster:
        wait(cluster)
        cluster.supervise()
        assert cluster.restarts == 0
        assert cluster.master_ended


def test_child_exit_wakes_the_loop_and_restarts_the_child_at_once() -> None:
    runtime = Runtime()
    idle = StatusPoller(every_s=inf)
    runtime.add(idle, f"inproc://{idle.name}")
    with ScriptCluster("import time; time.sleep(60)") as cluster:
        cluster.wake(runtime)
        runtime.step(wait_s=0.0)
        first = cluster.pids
        cluster._processes["node-0"].kill()
        runtime.step(wait_s=60.0)  # one step, so only the exit can wake the loop
        cluster._next_check_at = inf
        assert cluster.is_due(0.0)
        cluster.supervise()
        assert cluster.pids["node-0"] != first["node-0"]
        assert cluster.pids["master"] == first["master"]
        for process in cluster._processes.values():
            process.kill()
    runtime.close(linger_ms=0)


def test_ended_master_is_restarted_once_to_report_the_outcome() -> None:
    """The new master reads from the registry what the one before did not report."""
    with ScriptCluster(f"raise SystemExit({STOPPED})") as cluster:
        wait(cluster)
        assert cluster.nodes_ended
        first = cluster.pids
        cluster.restart_master()
        assert cluster.pids["master"] != first["master"]
        assert cluster.pids["node-0"] == first["node-0"]
        with pytest.raises(Unavailable, match="without recording an outcome"):
            cluster.restart_master()


def wait(cluster: LocalCluster) -> None:
    """Wait until all processes have exited."""
    for process in cluster._processes.values():
        process.wait()


def test_process_is_not_replaced_before_it_has_exited(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The kernel may delay the exit, for example while a disk does not respond."""
    with ScriptCluster("import time; time.sleep(60)") as cluster:
        asked = [["node-0"], []]
        monkeypatch.setattr(cluster._hangs, "find_hung", lambda *_: asked.pop(0) if asked else [])
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
        assert "was killed because it gave no sign of life; it will be restarted" in caplog.text
        for process in cluster._processes.values():
            process.kill()


def test_only_stores_of_stopped_nodes_of_earlier_layouts_are_removed(
    tmp_path: Path,
) -> None:
    for number in (0, 1, 2, 5, 6, 7, 10):
        (tmp_path / f"node-{number}").mkdir()
        (tmp_path / f"node-{number}" / "data").write_text("state")
    for name in ("node-2.lock", "input-0", "node-x"):
        (tmp_path / name).touch()
    remove_outdated(tmp_path, (5, 6), {"node-1", "node-5"})
    found = {path.name for path in tmp_path.iterdir()}
    stores = {"node-1", "node-5", "node-6", "node-7", "node-10"}
    assert found == stores | {"node-2.lock", "input-0", "node-x"}
