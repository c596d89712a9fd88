"""Who dies is started again, but not for ever; our own kills do not count."""

import random
import subprocess
import sys

import pytest

from deploy.cluster import RESTARTS_MAX, LocalCluster
from deploy.process import ProcessConfig
from engine.errors import Unavailable


class Sleepers(LocalCluster):
    """Processes that do nothing but exist, or die at once."""

    def __init__(self, script: str) -> None:
        super().__init__(
            ProcessConfig(
                flow="index",
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

    def _start(self, name: str) -> None:
        self._processes[name] = subprocess.Popen([sys.executable, "-c", self.script])


def test_killing_it_on_purpose_does_not_count_as_dying_again_and_again() -> None:
    chance = random.Random(1)
    with Sleepers("import time; time.sleep(60)") as cluster:
        for _ in range(6 * RESTARTS_MAX):
            cluster.kill_one(chance)
            cluster.supervise()
        assert cluster.kills == cluster.restarts == 6 * RESTARTS_MAX
        for process in cluster._processes.values():
            process.kill()


def test_what_dies_again_and_again_is_not_started_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("deploy.cluster.RESTARTS_WITHIN_S", 60.0)
    with Sleepers("raise SystemExit(9)") as cluster:
        for _ in range(RESTARTS_MAX - 1):
            wait(cluster)
            cluster.supervise()
        wait(cluster)
        with pytest.raises(Unavailable, match=r"again and again \(status 9\)"):
            cluster.supervise()


def test_a_master_that_has_ended_is_asked_again_once() -> None:
    """It can tell, by the registry, what the one before it did not."""
    with Sleepers("pass") as cluster:
        wait(cluster)
        assert cluster.nodes_ended
        first = cluster.pids
        cluster.ask_again()
        assert cluster.pids["master"] != first["master"]
        assert cluster.pids["node-0"] == first["node-0"]
        with pytest.raises(Unavailable, match="without a word"):
            cluster.ask_again()


def wait(cluster: LocalCluster) -> None:
    """Until all processes are dead."""
    for process in cluster._processes.values():
        process.wait()
