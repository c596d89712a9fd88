"""The children of a service, and copies of a view's process, which work beside it."""

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

TAKES_NO_NOTICE_YET = f"""
import os, signal
def end(*_): os._exit({STOPPED})
signal.signal(signal.SIGTERM, lambda *_: signal.signal(signal.SIGTERM, end))
print("ready", flush=True)
while True:
    signal.pause()
"""
"""A process as a view is that starts: the first signal does nothing."""

CONFIG = ServiceConfig(
    ProcessConfig(*("", 1, "", "", 1.0, ""), "", *("", "", False)), "", (ViewSpec("documents", ""),)
)

VIEW = "documents-0"


class Scripted(Children):
    """Children that run a program, which says that it is ready."""

    def _popen(self, config: ServiceConfig, pipes: Pipes) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", TAKES_NO_NOTICE_YET]
        made = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=pipes.stderr)
        assert made.stdout is not None
        with made.stdout:
            assert made.stdout.readline() == b"ready\n"
        return made


def test_shutdown_restarts_killed_children_but_not_stopped_views() -> None:
    with Scripted(CONFIG) as children:
        children.is_ending = True
        first, began = dict(children.pids), monotonic()
        children.finish()
        assert children._processes[VIEW].poll() == STOPPED, "asked to end until it took notice"
        assert monotonic() - began < FINISH_TIMEOUT_S
        os.kill(first["journal"], signal.SIGKILL)
        while children.pids["journal"] == first["journal"]:
            children.supervise()
            threading.Event().wait(0.01)
        assert children.pids[VIEW] == first[VIEW]


LIVES = """
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


def test_a_copy_ends_with_its_process() -> None:
    """The next process would find it writing the same files."""
    process = subprocess.Popen([sys.executable, "-c", LIVES], stdout=subprocess.PIPE)
    assert process.stdout is not None
    with process.stdout:
        copy = int(process.stdout.readline())
        os.kill(copy, signal.SIGSTOP)  # whatever it does just now
        process.kill()
        process.wait()
        assert not process.stdout.read(), "the copy has closed it, as it has ended"
