"""Functions that start processes: pools of processes work and end."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]

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


def run(folder: Path, flow: str, *options: str, records: int) -> list[object]:
    """The outputs of a run."""
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
    return [json.loads(line)["value"] for line in lines]


@pytest.mark.parametrize("options", [[], ["--reference"]], ids=["nodes", "reference"])
def test_functions_may_start_processes(options: list[str], tmp_path: Path) -> None:
    outputs = run(tmp_path, STARTING, *options, records=2)
    assert outputs == [[1, 2, 3, 5, 7]] * 2
