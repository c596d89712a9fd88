"""A run completes although processes die during its shutdown: real kill -9 at each message."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.deploy.local.command import ROOT, WORDCOUNT, count_lines

RECORDS = 50

FAILING = """
from driftline import Flow

flow = Flow("failing")
flow.source("lines").map(lambda record: 1 // (len(record["text"]) - 3), name="divide").sink()
"""


def run_dying(
    folder: Path, points: set[str], *arguments: str | Path
) -> subprocess.CompletedProcess[str]:
    """Run two nodes whose masters die at least at these points; wait until all processes end."""
    (folder / "died").mkdir()
    kinds = ",".join(sorted({point.split()[0] for point in points}))
    done = subprocess.run(
        [
            sys.executable, "-m", "tests.deploy.local.dying", str(folder / "died"), kinds, "run",
            *map(str, arguments), "--output", str(folder / "out"), "--nodes", "2",
            "--max-crashes", "100",
        ],
        cwd=ROOT, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    died = {file.name for file in (folder / "died").iterdir()}
    assert died >= points, f"no master died at {points - died}: {done.stderr}"
    assert left_over(folder) == []
    return done


def left_over(where: Path) -> list[str]:
    """Return the processes that have a directory in their command line."""
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit() and int(process.name) != os.getpid():
            try:
                line = (process / "cmdline").read_text(errors="replace")
            except OSError:
                continue
            if str(where) in line:
                found.append(line)
    return found


def test_master_killed_at_the_end_is_replaced_and_the_run_completes(tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    source.write_text("".join(json.dumps({"text": f"a b c{i}"}) + "\n" for i in range(RECORDS)))
    points = {"write", "Goodbye taken 1"}
    done = run_dying(tmp_path, points, WORDCOUNT, "--input", source)
    assert done.returncode == 0, done.stderr
    assert count_lines(tmp_path / "out") == 3 * RECORDS


def test_next_master_reports_the_error_of_a_killed_master(tmp_path: Path) -> None:
    (tmp_path / "failing.py").write_text(FAILING)
    (tmp_path / "in.txt").write_text("aa\nbbb\ncccc\n")
    points = {"written", "Stop sent 1", "Stop sent 2"}
    arguments = tmp_path / "failing.py", "--input", tmp_path / "in.txt"
    done = run_dying(tmp_path, points, *arguments)
    assert done.returncode == 1
    assert "'divide'" in done.stderr
    assert "ZeroDivisionError" in done.stderr
