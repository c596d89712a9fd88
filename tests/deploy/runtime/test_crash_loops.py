"""What kills its process again and again ends the run, with what it said and its record."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]

FLOW = """
import ctypes, os, signal, sys, time
from driftline import Flow, ValueState

signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # of no consequence for the command

def killer(record, total):
    if record["text"] == "segfault":
        print("about to fall", file=sys.stderr, flush=True)
        ctypes.string_at(0)
    if record["text"] == "exit":
        os._exit(0)
    if record["text"] == "late":
        time.sleep(0.6)
        os.kill(os.getpid(), 9)
    if record["text"] == "once" and not os.path.exists(ONCE):
        open(ONCE, "w").close()
        os._exit(0)
    total.set((total.get() or 0) + 1)
    return total.get()

ONCE = os.path.join(os.path.dirname(__file__), "died-once")
flow = Flow("killer")
keyed = flow.source("records").key_by(lambda r: r["id"] % 3)
keyed.scan(killer, ValueState("n"), name="killer").sink()
"""


def run(directory: Path, texts: list[str], *options: str) -> subprocess.CompletedProcess[str]:
    (directory / "killer.py").write_text(FLOW)
    source = directory / "in.jsonl"
    source.write_text(
        "".join(json.dumps({"id": i, "text": text}) + "\n" for i, text in enumerate(texts))
    )
    return subprocess.run(
        [
            sys.executable, "-m", "driftline", "run", str(directory / "killer.py"),
            "--input", str(source), "--output", str(directory / "out"), "--nodes", "2",
            "--checkpoint-ms", "100", *options,
        ],
        cwd=ROOT, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("text", "how"),
    [
        pytest.param("exit", "status 0", marks=pytest.mark.soak),
        pytest.param("late", "SIGKILL (is there enough memory", marks=pytest.mark.soak),
        ("segfault", "SIGSEGV"),
    ],
)
def test_a_record_that_kills_its_process_is_named(text: str, how: str, tmp_path: Path) -> None:
    done = run(tmp_path, ["fine"] * 40 + [text] + ["fine"] * 40, "--deaths", "3")
    assert done.returncode == 1
    for part in (
        "has died 3 times in a row",
        how,
        "operator 'killer'",
        "label [41, 0]",
        "key 1",
        f"'text': '{text}'",
    ):
        assert part in done.stderr
    if text == "segfault":
        assert "Last output on stderr: about to fall" in done.stderr
        assert re.search(r"Its files are in .*/node-\d", done.stderr)  # one of them may be damaged


@pytest.mark.soak
def test_crash_loop_is_reported_without_label_order(tmp_path: Path) -> None:
    done = run(tmp_path, ["fine"] * 40 + ["exit"], "--policy", "two-phase", "--deaths", "3")
    assert done.returncode == 1
    assert "has died 3 times" in done.stderr
    assert "'text': 'exit'" in done.stderr


def test_process_that_crashes_once_is_restarted(tmp_path: Path) -> None:
    done = run(tmp_path, ["fine"] * 40 + ["once"] + ["fine"] * 40)
    assert done.returncode == 0, done.stderr
    assert "status 0 (something in it called exit); it will be restarted" in done.stderr
    found = [
        json.loads(line)
        for file in (tmp_path / "out").glob("*.jsonl")
        for line in file.read_text().splitlines()
    ]
    assert sorted(row["value"] for row in found) == sorted(i // 3 + 1 for i in range(81))
