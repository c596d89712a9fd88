"""Functions that fork: a copy that comes back ends, and pools of processes work and end."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]

FORKING = """
import os, sys
from driftline import Flow, ValueState

def mapped(record):
    if not os.fork() and record["text"].endswith("3"):
        sys.exit()  # an exception comes back, too
    return record["text"]

def generated(text):
    os.fork()
    yield text

def key(text):
    os.fork()
    return text

def scanned(text, last):
    os.fork()
    with open(SEEN, "a") as file:
        file.write(text + str(os.getpid()) + "\\n")
    return text

flow = Flow("forks")
stream = flow.source("in").map(mapped).flat_map(generated).key_by(key)
stream.scan(scanned, ValueState("last")).sink("out")
"""

STARTING = """
import multiprocessing, os, subprocess, sys, time
from concurrent.futures import ProcessPoolExecutor
from driftline import Flow

def work(record):
    context = multiprocessing.get_context("fork")
    process = context.Process(target=time.sleep, args=(1000,))
    process.start()
    process.terminate()
    process.join()
    assert process.exitcode == -15
    with context.Pool(2) as pool:  # ends its processes by SIGTERM
        found = pool.map(len, ["a", record["text"]])
    with ProcessPoolExecutor(1, context) as executor:
        found.append(executor.submit(len, "abc").result())
    command = [sys.executable, "-c", "print(5)"]
    done = subprocess.run(command, stdout=subprocess.PIPE, preexec_fn=os.getpid)
    found.append(int(done.stdout))
    if not (pid := os.fork()):
        os._exit(7)
    found.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    return found

flow = Flow("starts")
flow.source("in").map(work).sink("out")
"""


def run(folder: Path, flow: str, *options: str, records: int) -> tuple[list[object], str]:
    """The outputs of a run, and what the command said."""
    (folder / "in.jsonl").write_text("".join(f'{{"text": "a{n}"}}\n' for n in range(records)))
    (folder / "flow.py").write_text(flow)
    output = folder / "out"
    done = subprocess.run(
        [sys.executable, "-m", "driftline", "run", str(folder / "flow.py"), "--input",
         str(folder / "in.jsonl"), "--output", str(output), *options],
        cwd=ROOT, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = [line for file in output.glob("*.jsonl") for line in file.read_text().splitlines()]
    return [json.loads(line)["value"] for line in lines], done.stderr


@pytest.mark.parametrize("options", [[], ["--reference"]], ids=["nodes", "reference"])
def test_a_copy_that_comes_back_ends_at_once_and_says_where(
    options: list[str], tmp_path: Path
) -> None:
    seen = tmp_path / "seen"
    flow = FORKING.replace("SEEN", repr(str(seen)))
    outputs, said = run(tmp_path, flow, *options, records=10)
    assert outputs == [f"a{n}" for n in range(10)]
    assert "came back from it: it is ended" in said
    for number, line in enumerate(flow.splitlines(), 1):
        if "fork()" in line:
            assert f"flow.py:{number}, in" in said
    # A function has one call, and one copy of the process in it; no copy calls a function.
    assert len(seen.read_text().splitlines()) == 20


@pytest.mark.parametrize("options", [[], ["--reference"]], ids=["nodes", "reference"])
def test_functions_may_start_processes(options: list[str], tmp_path: Path) -> None:
    outputs, said = run(tmp_path, STARTING, *options, records=2)
    assert outputs == [[1, 2, 3, 5, 7]] * 2
    assert "came back" not in said
