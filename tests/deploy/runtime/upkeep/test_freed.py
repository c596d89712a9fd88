"""Memory that was freed goes back to the system, seldom, and not while a process is busy."""

from __future__ import annotations

import subprocess
import sys

import pytest

from driftline.deploy.runtime.upkeep.freed import GIVE_BACK_S, Freed

FREES_EVERY_OTHER = """
from time import monotonic, process_time
from driftline.deploy.runtime.upkeep import freed
from driftline.deploy.runtime.loop.runtime import Runtime
from driftline.engine.wire.party import Party

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096

kept = [bytes([number % 256]) * 100_000 for number in range(1000)]
del kept[::2]
before = resident()
freed.LOOK_S = 0.1
runtime = Runtime()
runtime.add(Party("p"), "inproc://p")
runtime.step(wait_s=0)
worked = process_time() + 0.2
while process_time() < worked:
    pass
until = monotonic() + 20
while before - resident() < FREED and monotonic() < until:
    runtime.step(wait_s=0.1)
print(before - resident())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only glibc has a call for it")
def test_a_process_at_rest_gives_back_what_was_freed() -> None:
    """Between objects that are still there, too."""
    freed = 30_000_000
    script = FREES_EVERY_OTHER.replace("FREED", str(freed))
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True)
    assert int(done.stdout) >= freed


def test_memory_is_given_back_twice_after_work(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = 0.0
    monkeypatch.setattr("driftline.deploy.runtime.upkeep.freed.process_time", lambda: cpu)
    given_back: list[int] = []
    second = 0
    freed = Freed(lambda: given_back.append(second))
    for second in range(200):
        if 100 <= second < 150:
            cpu += 0.5
        if freed.is_due(second):
            freed.rest(second)
    assert given_back == [150, 150 + GIVE_BACK_S]
