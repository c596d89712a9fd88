"""A run ends whatever dies while it does: real processes, and kill -9 at each message."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deploy.local.command import ROOT, WORDCOUNT, count_lines

RECORDS = 50
MEMBERS = 3
"""Two nodes and a front: so many are told, and say goodbye."""

POINTS = [
    "write",
    "written",
    *(f"{kind}-{number}" for kind in ("Stop", "Goodbye") for number in (1, MEMBERS)),
    *(pytest.param(point, marks=pytest.mark.soak) for point in ("Stop-2", "Goodbye-2")),
]

FAILING = """
from driftline import Flow

flow = Flow("failing")
flow.source("lines").map(lambda record: 1 // (len(record["text"]) - 3), name="divide").sink()
"""


def driftline(*arguments: str | Path, module: str) -> subprocess.CompletedProcess[str]:
    """Run the command line, or what stands in for it."""
    return subprocess.run(
        [sys.executable, "-m", module, *map(str, arguments)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.fixture
def records(tmp_path: Path) -> Path:
    """A file to read."""
    path = tmp_path / "in.jsonl"
    path.write_text("".join(json.dumps({"text": f"a b c{i}"}) + "\n" for i in range(RECORDS)))
    return path


def left_over(where: Path) -> list[str]:
    """Processes that have a directory in their command line."""
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


@pytest.mark.parametrize("point", POINTS)
def test_master_killed_at_the_end_is_replaced_and_the_run_completes(
    point: str, records: Path, tmp_path: Path
) -> None:
    output, file, report = tmp_path / "out", tmp_path / "died", tmp_path / "report.json"
    done = driftline(
        point, file, "run", WORDCOUNT, "--input", records, "--output", output,
        "--nodes", "2", "--json", report, module="tests.deploy.local.dying",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert file.read_text() == point, "it did not die"
    assert count_lines(output) == 3 * RECORDS
    assert left_over(tmp_path) == []


def test_next_master_reports_the_error_of_a_killed_master(tmp_path: Path) -> None:
    (tmp_path / "failing.py").write_text(FAILING)
    (tmp_path / "in.txt").write_text("aa\nbbb\ncccc\n")
    given = "run", tmp_path / "failing.py", "--input", tmp_path / "in.txt"
    done = driftline(
        "written", tmp_path / "died", *given, "--output", tmp_path / "out", "--nodes", "2",
        module="tests.deploy.local.dying",
    )  # fmt: skip
    assert done.returncode == 1
    assert (tmp_path / "died").exists()
    assert "'divide'" in done.stderr
    assert "ZeroDivisionError" in done.stderr
    assert left_over(tmp_path) == []
