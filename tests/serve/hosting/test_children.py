"""Child processes of a service, and forked jobs of a view process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from time import monotonic

from driftline.deploy.runtime.config import ProcessConfig
from driftline.deploy.runtime.supervision.child_process import Pipes
from driftline.deploy.runtime.supervision.restarts import STOPPED
from driftline.serve.hosting.children import FINISH_TIMEOUT_S, Children
from driftline.serve.hosting.config import ServiceConfig, ViewSpec

IGNORES_FIRST_SIGTERM = f"""
import os, signal
def end(*_): os._exit({STOPPED})
signal.signal(signal.SIGTERM, lambda *_: signal.signal(signal.SIGTERM, end))
print("ready", flush=True)
while True:
    signal.pause()
"""
"""Program that ignores the first SIGTERM, like a view process that is still starting."""

CONFIG = ServiceConfig(
    ProcessConfig(*("", 1, "", "", 1.0, ""), "", *("", "", False)), "", (ViewSpec("documents", ""),)
)

VIEW = "documents-0"


class StubChildren(Children):
    """Children that run a stub program instead of the real ones."""

    def _popen(self, config: ServiceConfig, pipes: Pipes) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", IGNORES_FIRST_SIGTERM]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=pipes.stderr)
        assert process.stdout is not None
        with process.stdout:
            assert process.stdout.readline() == b"ready\n"
        return process


def test_shutdown_restarts_killed_children_but_not_stopped_views() -> None:
    with StubChildren(CONFIG) as children:
        children.is_ending = True
        first_pids, started_s = dict(children.pids), monotonic()
        children.finish()
        assert children._processes[VIEW].poll() == STOPPED, (
            "SIGTERM was not repeated until the process exited"
        )
        assert monotonic() - started_s < FINISH_TIMEOUT_S
        os.kill(first_pids["journal"], signal.SIGKILL)
        while children.pids["journal"] == first_pids["journal"]:
            children.supervise()
            threading.Event().wait(0.01)
        assert children.pids[VIEW] == first_pids[VIEW]


RUNS_FORKED_JOB = """
import os, time
from functools import partial
from types import SimpleNamespace
from driftline.deploy.runtime.loop.cpu_affinity import CpuAffinity
from driftline.deploy.runtime.supervision.child_process import ChildExitWatcher
from driftline.serve.hosting.view_process import ForkedJobs
from driftline.serve.views.hosted import BackgroundJob

def work():
    print(os.getpid(), flush=True)
    while True:
        time.sleep(60)

host = SimpleNamespace(name="documents-0", job=BackgroundJob("work", work, lambda: None))
ForkedJobs(host, ChildExitWatcher(), (), CpuAffinity()).turn()
time.sleep(60)
"""


def test_forked_job_dies_with_its_process() -> None:
    """Otherwise the job would write the same files as the restarted process."""
    process = subprocess.Popen([sys.executable, "-c", RUNS_FORKED_JOB], stdout=subprocess.PIPE)
    assert process.stdout is not None
    with process.stdout:
        job_pid = int(process.stdout.readline())
        os.kill(job_pid, signal.SIGSTOP)  # even a suspended job must end
        process.kill()
        process.wait()
        assert not process.stdout.read(), "the job wrote more after its process was killed"
