"""Clocks of hosts that are set while a flow runs: it goes on, and the outputs are the same."""

from __future__ import annotations

import json
import os
from pathlib import Path
from unittest.mock import patch

import pytest

from driftline import run_reference
from driftline.engine.flow.loading import load_flow
from tests.deploy.cluster.machine import KINDS, Machine
from tests.zookeepers import Ensemble

FLOW = """
import os, time
from driftline import Flow, ValueState

def joined(record, text):
    if os.path.exists(PACED):
        time.sleep(0.002)  # so that a run takes a while
    text.set((text.get() or "")[-20:] + record["text"])
    return [record["key"], text.get()]

flow = Flow("joined")
flow.source("records").key_by("key").scan(joined, ValueState("text")).sink("texts")
"""

RECORDS = [{"key": n % 31, "text": f"{n} "} for n in range(4000)]

DAY_S = 24 * 3600.0


class Clocks:
    """The clock of each agent, and of all its processes."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self._folder = folder
        self._patch = patch
        others = [os.environ["PYTHONPATH"]] if "PYTHONPATH" in os.environ else []
        ours = Path(__file__).with_name("clocks")
        patch.setenv("PYTHONPATH", os.pathsep.join([str(ours), *others]))

    def start(self, machine: Machine, kind: str) -> None:
        """Start an agent with a clock of its own."""
        self._patch.setenv("CLOCK", str(self._folder / f"{kind}.clock"))
        machine.start(kind)

    def set(self, kind: str, wrong_by_s: float) -> None:
        """Set the clock of an agent."""
        new = self._folder / f"{kind}.new"
        new.write_text(str(wrong_by_s))
        new.rename(self._folder / f"{kind}.clock")


def test_clock_jumps_on_hosts_do_not_change_outputs(
    tmp_path: Path, zookeeper: Ensemble, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow, file = tmp_path / "flow.py", tmp_path / "records.jsonl"
    paced = tmp_path / "paced"
    paced.touch()
    flow.write_text(FLOW.replace("PACED", repr(str(paced))))
    file.write_text("".join(json.dumps(record) + "\n" for record in RECORDS))
    clocks = Clocks(tmp_path, monkeypatch)
    with Machine(tmp_path, zookeeper, (), ("--log-json",)) as machine:
        for kind in KINDS:
            clocks.start(machine, kind)
        machine.all_run()
        machine.command("submit", flow, "--input", file, "--output", machine.output,
                        "--nodes", 2, "--window", 100, "--checkpoint-ms", 200)  # fmt: skip

        def more() -> None:
            count = len(machine.values())
            machine.until(lambda: len(machine.values()) >= count + 400, "outputs")

        more()
        incarnation = machine.flow("joined")["incarnation"]
        for kind, wrong_by_s in (("node", DAY_S), ("master", -DAY_S), ("front", -400 * DAY_S)):
            clocks.set(kind, wrong_by_s)
            more()
            clocks.set(kind, -wrong_by_s)
        assert machine.flow("joined")["incarnation"] == incarnation, "no reason to recover"
        machine.kill("node")
        clocks.start(machine, "node")
        paced.unlink()
        machine.over("joined")
        assert machine.flow("joined")["state"] == "complete"
        said = [line for line in machine.logs().splitlines() if line.startswith("{")]
    days = {json.loads(line)["time"].partition("T")[0] for line in said}
    assert len(days) > 3, "its clocks were set"
    expected: dict[object, list[object]] = {}
    with patch("time.sleep"):
        for item in run_reference(load_flow(str(flow)), [RECORDS]):
            assert isinstance(item.value, tuple)
            expected.setdefault(item.value[0], []).append(item.value[1])
    found: dict[object, list[object]] = {}
    for value in machine.values():
        assert isinstance(value, list)
        found.setdefault(value[0], []).append(value[1])
    assert found == expected
