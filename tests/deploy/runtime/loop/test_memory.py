"""Cycles from user functions do not fill a node's memory; an idle process returns freed memory."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
from pathlib import Path

import pytest

from driftline import Flow, FlowTest, run

RECORDS = 20_000
TEXT_BYTES = 16_000
"""Size of the text that each cycle references; all texts together are 320 MB.

A busy node collects the first of them after `YOUNG_MAX` new objects, which refer to about 50 MB.
"""

FLOW = """
import driftline

class Parsed:
    def __init__(self, text, parent=None):
        self.text, self.parent, self.children = text, parent, []

def parse(record):
    root = Parsed("x" * BYTES)
    root.children = [Parsed(word, root) for word in "to be or".split()]
    return {"kind": record["id"] % 10, "memory": memory() if record["id"] % 250 == 0 else 0}

def fail(record, largest):
    largest.set(max(largest.get(0), record["memory"]))
    error = ValueError("x" * BYTES)
    try:
        raise error
    except ValueError as caught:
        kept = caught  # refers to this frame, which refers to it
    return largest.get()

def memory():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096

flow = driftline.Flow("cycles")
parsed = flow.source("records").map(parse)
parsed.key_by("kind").scan(fail, driftline.ValueState("largest")).sink()
"""


@pytest.mark.parametrize(
    "policy", ["exactly-once", pytest.param("two-phase", marks=pytest.mark.soak)]
)
def test_memory_stays_bounded_if_a_function_makes_cycles(policy: str, tmp_path: Path) -> None:
    (tmp_path / "flow.py").write_text(FLOW.replace("BYTES", str(TEXT_BYTES)))
    (tmp_path / "in.jsonl").write_text(
        "".join(json.dumps({"id": number}) + "\n" for number in range(RECORDS))
    )
    command = [sys.executable, "-m", "driftline", "run", "flow.py:flow", "--input", "in.jsonl"]
    subprocess.run(
        [*command, "--output", "out", "--policy", policy],
        cwd=tmp_path,
        check=True,
        capture_output=True,
        timeout=300,
    )
    lines = [
        line
        for file in (tmp_path / "out").glob("*.jsonl")
        for line in file.read_text().splitlines()
    ]
    largest = [json.loads(line)["value"] for line in lines]
    assert len(largest) == RECORDS
    assert max(largest) < 5 * min(filter(None, largest)), "memory grows with the input"


def test_run_in_a_user_process_does_not_change_its_gc_settings() -> None:
    flow = Flow("shout")
    flow.source("words").map(str.upper).sink()
    before = gc.isenabled(), gc.get_threshold(), gc.get_freeze_count()
    assert [item.value for item in run(flow, [["a", "b"]])] == ["A", "B"]
    with FlowTest(flow) as test:
        test.send("c")
        assert test.outputs() == ["C"]
    assert (gc.isenabled(), gc.get_threshold()) == before[:2]
    assert gc.get_freeze_count() <= before[2], "less: objects of the tests were freed"


FREES_EVERY_OTHER = """
from time import monotonic, process_time
from driftline.deploy.runtime.loop import memory
from driftline.deploy.runtime.loop.runtime import Runtime
from driftline.engine.wire.role import Role

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096

kept = [bytes([number % 256]) * 100_000 for number in range(1000)]
del kept[::2]
before = resident()
memory.CHECK_INTERVAL_S = 0.1
runtime = Runtime()
runtime.add(Role("p"), "inproc://p")
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
def test_idle_process_returns_freed_memory_to_the_system() -> None:
    """Freed blocks between live objects are returned, too."""
    freed = 30_000_000
    script = FREES_EVERY_OTHER.replace("FREED", str(freed))
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True)
    assert int(done.stdout) >= freed
