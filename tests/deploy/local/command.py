"""Calls of the `driftline` command, in a separate process or in that of the test."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from unittest.mock import patch

import driftline as package

ROOT = Path(__file__).resolve().parents[3]
WORDCOUNT = ROOT / "examples" / "wordcount.py"


def driftline(*arguments: str | Path, timeout: float = 300) -> subprocess.CompletedProcess[str]:
    """Run the command in a separate process."""
    return subprocess.run(
        [sys.executable, "-m", "driftline", *map(str, arguments)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def call(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run the command in this process, which avoids starting an interpreter; nodes are processes.

    String hashes differ between this process and the nodes: unsuitable for functions that iterate
    over a set.
    """
    words = ["driftline", *map(str, arguments)]
    out, err = StringIO(), StringIO()
    with patch("sys.argv", words), redirect_stdout(out), redirect_stderr(err):
        try:
            status = package._status()
        except SystemExit as ended:
            status = ended.code
    code = status if isinstance(status, int) else 0
    return subprocess.CompletedProcess(words, code, out.getvalue(), err.getvalue())


def lines(directory: Path) -> list[str]:
    """Return all output lines of a directory, merged by label."""
    found = [line for file in directory.glob("*.jsonl") for line in file.read_text().splitlines()]
    return sorted(found, key=lambda line: list(json.loads(line)["t"]))


def count_lines(directory: Path) -> int:
    """Return the number of output lines of a directory, without parsing them."""
    return sum(file.read_bytes().count(b"\n") for file in directory.glob("*.jsonl"))
