"""`run` with nodes in processes: which flows they can import, and requirements for scripts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from driftline import RunSummary, run, run_reference
from driftline.api.run import as_importable
from driftline.engine.errors import StateMismatch, Unavailable
from driftline.engine.flow.loading import load_flow
from tests.api import flows
from tests.api.flows import IMPORTABLE, ORDERS, as_lines, division_flow, lines_in, running_totals

ROOT = Path(__file__).resolve().parents[3]

FLOW = """
import operator
from pathlib import Path

from driftline import Flow, ReducingState, run

flow = Flow("totals")
flow.source("orders").key_by("who").scan(
    lambda order, spent: (order["who"], spent.add(order["price"])),
    ReducingState("spent", operator.add),
).sink("totals")
{after}
"""

CALL = """
{guard}
    summary = run(flow, [[{{"who": "ab"[i % 2], "price": i}} for i in range(40)]], "out", nodes=2)
    print(summary.outputs, summary.processes)
"""

GUARD = 'if __name__ == "__main__":'


def script(folder: Path, after: str) -> Path:
    """Write a script with a flow and the code that runs it."""
    path = folder / "orders.py"
    path.write_text(FLOW.format(after=after))
    return path


def executed(path: Path) -> subprocess.CompletedProcess[str]:
    """Run a script in its folder, as a user does."""
    return subprocess.run(
        [sys.executable, path.name],
        cwd=path.parent,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_importable_flow_runs_in_processes_and_resumes(tmp_path: Path) -> None:
    summary = run(IMPORTABLE, {"orders": ORDERS}, tmp_path, nodes=2)
    assert summary == RunSummary(40, 40, 0, 0, 0, summary.seconds, processes=True)
    expected = as_lines(IMPORTABLE, list(run_reference(IMPORTABLE, [ORDERS])))
    assert lines_in(tmp_path) == expected
    again = run(IMPORTABLE, {"orders": ORDERS}, tmp_path, nodes=2)
    assert again.outputs == 40
    assert lines_in(tmp_path) == expected
    with pytest.raises(StateMismatch, match="input"):
        run(IMPORTABLE, {"orders": ORDERS[1:]}, tmp_path, nodes=2)


def test_flow_has_a_name_only_if_others_can_import_it(tmp_path: Path) -> None:
    assert as_importable(flows.FAILING)[0].endswith(":FAILING")
    loaded = load_flow(str(script(tmp_path, "")))
    assert as_importable(loaded)[0] == f"{tmp_path / 'orders.py'}:flow"
    for flow in (running_totals(), division_flow()):
        assert as_importable(flow) == ("", flow)


def test_flow_that_differs_between_processes_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "changing.py").write_text(
        "import os\n\nfrom driftline import Flow\n\n"
        "flow = Flow('changing')\n"
        "flow.source('numbers').map(lambda n: n, name=f'map in {os.getpid()}').sink()\n"
    )
    with pytest.raises(Unavailable, match=r"another flow in this process than in the command"):
        run(f"{tmp_path / 'changing.py'}:flow", [[1, 2]], tmp_path / "out")


def test_script_with_a_guarded_call_runs_in_processes(tmp_path: Path) -> None:
    done = executed(script(tmp_path, CALL.format(guard=GUARD)))
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["40", "True"]
    assert len(lines_in(tmp_path / "out")) == 40


def test_unguarded_script_error_explains_how_to_guard_the_call(tmp_path: Path) -> None:
    done = executed(script(tmp_path, CALL.format(guard="def call():") + "call()"))
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert "orders.py calls run(...) while it is loaded for the flow in it" in last
    assert f"put the call under `{GUARD}`" in last
    assert not (tmp_path / "out").exists()
