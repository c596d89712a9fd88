"""What mypy --strict says of flows, as their authors run it: without a configuration of ours."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
EXAMPLES = HERE.parents[1] / "examples"
RIGHT = sorted((HERE / "right").glob("*.py"))
WRONG = sorted((HERE / "wrong").glob("*.py"))

MARK = "  # error: "
"""Ends a line that is to fail; the codes of its errors follow."""

MYPY_MAX_S = 120.0

Place = tuple[str, int, str]
"""File, line, and the code of an error there."""


def marked() -> set[Place]:
    """The errors that there are to be."""
    return {
        (str(path), number, code)
        for path in WRONG
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if MARK in line
        for code in line.partition(MARK)[2].split(", ")
    }


def found(folder: Path) -> set[Place]:
    """The errors that mypy finds in the examples, in what `driftline new` writes, and in flows that
    are right and wrong."""
    new = [sys.executable, "-m", "driftline", "new", "word-counts"]
    subprocess.run(new, cwd=folder, check=True, capture_output=True)
    written = sorted((folder / "word_counts").glob("*.py"))
    assert len(written) == 2
    files = [*sorted(EXAMPLES.glob("*.py")), *written, *RIGHT, *WRONG]
    options = ["--strict", "--config-file=", "--output=json", f"--cache-dir={folder / 'cache'}"]
    # Elsewhere than in our checkout: there Driftline itself would be checked, too.
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *options, *map(str, files)],
        cwd=folder,
        env={name: value for name, value in os.environ.items() if not name.startswith("MYPY")},
        capture_output=True,
        text=True,
        timeout=MYPY_MAX_S,
    )
    assert (done.returncode, done.stderr) == (1, ""), done.stdout
    errors = [json.loads(line) for line in done.stdout.splitlines()]
    return {
        (str(folder / error["file"]), error["line"], error["code"])
        for error in errors
        if error["severity"] == "error"
    }


def test_mypy_reports_errors_exactly_on_the_marked_lines(tmp_path: Path) -> None:
    assert sorted(found(tmp_path)) == sorted(marked())


def test_each_file_of_wrong_uses_has_some() -> None:
    assert {Path(path) for path, _, _ in marked()} == set(WRONG)


@pytest.mark.parametrize("path", RIGHT, ids=[path.stem for path in RIGHT])
def test_correct_examples_can_be_executed(path: Path) -> None:
    runpy.run_path(str(path))
