"""Flows as type checkers see them.

`mypy`, which is part of the tests, checks the files in `right` and `wrong`, and the examples. Each
wrong use is marked with the expected error: a comment that ignores nothing is an error.
"""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
EXAMPLES = HERE.parents[1] / "examples"
RIGHT = sorted((HERE / "right").glob("*.py"))


@pytest.mark.parametrize("path", RIGHT, ids=[path.stem for path in RIGHT])
def test_correct_examples_can_be_executed(path: Path) -> None:
    runpy.run_path(str(path))


@pytest.mark.soak
def test_type_checking_a_flow_needs_no_configuration(tmp_path: Path) -> None:
    """The flow is outside of our checkout, where Driftline itself would be checked, too."""
    new = [sys.executable, "-m", "driftline", "new", "word-counts"]
    subprocess.run(new, cwd=tmp_path, check=True, capture_output=True)
    written = sorted((tmp_path / "word_counts").glob("*.py"))
    assert len(written) == 2
    files = [*sorted(EXAMPLES.glob("*.py")), *written, *RIGHT]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--config-file=", *map(str, files)],
        cwd=tmp_path,
        env={name: value for name, value in os.environ.items() if not name.startswith("MYPY")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
