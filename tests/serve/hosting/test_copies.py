"""Copies of a view's process, which do its work beside it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

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
