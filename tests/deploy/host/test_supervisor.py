"""Who dies is started again, but not for ever; our own kills do not count."""

import random
import subprocess
import sys

import pytest

from driftline.deploy.host.deaths import DEATHS_MAX
from driftline.deploy.host.process import STOPPED, ProcessConfig
from driftline.deploy.host.supervisor import LocalCluster
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

    def _popen(self, config: ProcessConfig, stdout: int, stderr: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-c", self.script],
            stdin=subprocess.PIPE,
            stdout=stdout,
            stderr=stderr,
            pass_fds=[config.lifeline],
        )


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


def supervise_for_ever(cluster: LocalCluster) -> None:
    """A run that gets nowhere."""
    while True:
        wait(cluster)
        cluster.supervise(7, sent=9)


def test_a_master_that_has_ended_is_asked_again_once() -> None:
    """It can tell, by the registry, what the one before it did not."""
    with Scripted(f"raise SystemExit({STOPPED})") as cluster:
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
