"""A crash loop ends the run, with the output of the crashed process and the record."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.deploy.local.command import driftline

FLOW = """
import ctypes, signal, sys
from driftline import Flow, ValueState

signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # of no consequence for the command

def killer(record, total):
    if record["text"] == "segfault":
        print("about to fall", file=sys.stderr, flush=True)
        ctypes.string_at(0)
    total.set((total.get() or 0) + 1)
    return total.get()

flow = Flow("killer")
keyed = flow.source("records").key_by(lambda r: r["id"] % 3)
keyed.scan(killer, ValueState("n"), name="killer").sink()
"""


def test_record_that_crashes_its_process_is_named(tmp_path: Path) -> None:
    (tmp_path / "killer.py").write_text(FLOW)
    source = tmp_path / "in.jsonl"
    texts = ["fine"] * 40 + ["segfault"] + ["fine"] * 40
    source.write_text(
        "".join(json.dumps({"id": i, "text": text}) + "\n" for i, text in enumerate(texts))
    )
    done = driftline(
        "run", tmp_path / "killer.py", "--input", source, "--output", tmp_path / "out",
        "--nodes", "2", "--snapshot-interval-ms", "100", "--max-crashes", "3",
    )  # fmt: skip
    assert done.returncode == 1
    for part in (
        "has died 3 times in a row",
        "SIGSEGV",
        "operator 'killer'",
        "label [41, 0]",
        "key 1",
        "'text': 'segfault'",
        "Last output on stderr: about to fall",
    ):
        assert part in done.stderr
    assert re.search(r"Its files are in .*/node-\d", done.stderr)  # one of them may be damaged
