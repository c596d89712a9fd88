"""User files and Driftline's modules do not shadow each other."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

WRONG = "raise RuntimeError('the wrong module was imported')"

FLOW = """
import operator
from driftline import Flow, ReducingState
from engine import BONUS
from letters import twice

flow = Flow("mine")
words = flow.source("lines").flat_map(lambda record: record["text"].split())
counts = words.key_by(lambda word: word).scan(
    lambda word, total: (word, twice(total.add(1)) + BONUS),
    ReducingState("total", operator.add),
)
counts.sink("counts")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with a flow.

    Its other files are named like modules of Python, libraries and Driftline.
    """
    for name in ("acker", "bench", "click", "datetime", "deploy", "lmdb", "zmq"):
        (tmp_path / f"{name}.py").write_text(WRONG)
    (tmp_path / "engine.py").write_text("BONUS = 100")
    for name, text in (("index", WRONG), ("letters", "def twice(n): return 2 * n")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(text)
    (tmp_path / "mine.py").write_text(FLOW)
    (tmp_path / "in.jsonl").write_text('{"text": "a b a"}\n{"text": "b"}\n')
    return tmp_path


def test_flow_runs_among_files_of_any_name(folder: Path) -> None:
    command = [sys.executable, "-m", "driftline", "run", "mine", "--input", "in.jsonl"]
    done = subprocess.run(
        [*command, "--output", "out", "--nodes", "2"],
        cwd=folder, capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = [line for path in (folder / "out").glob("*.jsonl") for line in path.open()]
    outputs = sorted(json.loads(line)["value"] for line in found)
    assert outputs == [["a", 102], ["a", 104], ["b", 102], ["b", 104]]
