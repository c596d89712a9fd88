"""What the README says is so."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from driftline import COMMANDS, run_reference
from driftline.engine.flow.loading import load_flow

ROOT = Path(__file__).resolve().parents[1]


def test_the_example_counts_words() -> None:
    flow = load_flow(str(ROOT / "examples" / "wordcount.py"))
    items = list(run_reference(flow, [[{"text": "a b a"}]]))
    assert [item.value for item in items] == [("a", 1), ("b", 1), ("a", 2)]


def test_every_command_that_is_named_exists() -> None:
    named = set(re.findall(r"driftline ([a-z]+) ", (ROOT / "README.md").read_text()))
    assert named - {"import"} <= set(COMMANDS)
    assert "run" in named


def test_importing_driftline_loads_nothing_that_a_flow_does_not_need() -> None:
    program = (
        "import sys; from driftline import Flow, MapState, run_reference; "
        "print({'zmq', 'lmdb', 'rich', 'click'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "set()\n"
