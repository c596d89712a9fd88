"""The children of a service, as it ends."""

from __future__ import annotations

import subprocess
import sys
from time import monotonic
from types import SimpleNamespace

from driftline.deploy.host.statuses import STOPPED
from driftline.serve.hosting.children import FINISH_S, Children

TAKES_NO_NOTICE_YET = f"""
import os, signal
def end(*_): os._exit({STOPPED})
signal.signal(signal.SIGTERM, lambda *_: signal.signal(signal.SIGTERM, end))
print("ready", flush=True)
while True:
    signal.pause()
"""
"""A process as a view is that starts: the first signal does nothing."""


def test_a_view_that_takes_no_notice_yet_is_asked_to_end_again() -> None:
    view = subprocess.Popen([sys.executable, "-c", TAKES_NO_NOTICE_YET], stdout=subprocess.PIPE)
    assert view.stdout is not None
    assert view.stdout.readline() == b"ready\n"
    children = Children.__new__(Children)
    children._running = {"documents-0": SimpleNamespace(process=view)}  # type: ignore[dict-item]
    began = monotonic()
    children.finish()
    assert view.poll() == STOPPED
    assert monotonic() - began < FINISH_S
    view.stdout.close()
