"""Rescaling of a cluster flow while agents are killed and clocks jump."""

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
        time.sleep(0.001)  # so that a run takes a while
    text.set((text.get() or "")[-20:] + record["text"])
    return {"key": record["key"], "text": text.get()}

flow = Flow("joined")
flow.source("records").key_by("key").scan(joined, ValueState("text")).sink("texts")
"""

RECORDS = [{"key": n % 31, "text": f"{n} "} for n in range(15_000)]


DAY_S = 24 * 3600.0


class AgentClocks:
    """Clocks of agents; an agent's processes share its clock."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self._folder = folder
        self._patch = patch
        others = [os.environ["PYTHONPATH"]] if "PYTHONPATH" in os.environ else []
        ours = Path(__file__).with_name("clocks")
        patch.setenv("PYTHONPATH", os.pathsep.join([str(ours), *others]))

    def start(self, machine: Machine, kind: str) -> None:
        """Start an agent with its own clock."""
        self._patch.setenv("CLOCK", str(self._folder / f"{kind}.clock"))
        machine.start(kind)

    def set(self, kind: str, wrong_by_s: float) -> None:
        """Set the clock error of an agent."""
        new = self._folder / f"{kind}.new"
        new.write_text(str(wrong_by_s))
        new.rename(self._folder / f"{kind}.clock")


def matches_reference(machine: Machine) -> bool:
    """Return whether the outputs equal the reference interpreter's, in its order for each key."""
    expected: dict[object, list[object]] = {}
    with patch("time.sleep"):
        for item in run_reference(load_flow(str(machine.folder / "flow.py")), [RECORDS]):
            assert isinstance(item.value, dict)
            expected.setdefault(item.value["key"], []).append(item.value["text"])
    lines = [
        json.loads(line)
        for file in machine.output.glob("*.jsonl")
        for line in file.read_text().splitlines()
    ]
    found: dict[object, list[object]] = {}
    for line in sorted(lines, key=lambda line: line["t"]):
        found.setdefault(line["value"]["key"], []).append(line["value"]["text"])
    return found == expected


@pytest.mark.soak
def test_flow_rescales_despite_kills_and_clock_jumps(
    tmp_path: Path, zookeeper: Ensemble, monkeypatch: pytest.MonkeyPatch
) -> None:
    paced = tmp_path / "paced"
    paced.touch()
    (tmp_path / "flow.py").write_text(FLOW.replace("PACED", repr(str(paced))))
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(record) + "\n" for record in RECORDS))
    clocks = AgentClocks(tmp_path, monkeypatch)
    with Machine(tmp_path, zookeeper, (), ("--log-json",)) as machine:
        for kind in KINDS:
            clocks.start(machine, kind)
        machine.all_run()
        files = "flow.py", "--input", "in.jsonl", "--output", machine.output
        arguments = *files, "--max-in-flight", "100"
        machine.command("submit", *arguments, "--nodes", "1", "--snapshot-interval-ms", "300")

        def send_more() -> None:
            count = len(machine.values())
            machine.until(lambda: len(machine.values()) >= count + 400, "outputs")

        send_more()
        incarnation = machine.flow("joined")["incarnation"]
        for kind, wrong_by_s in (("node", DAY_S), ("master", -DAY_S), ("front", -400 * DAY_S)):
            clocks.set(kind, wrong_by_s)
            send_more()
        assert machine.flow("joined")["incarnation"] == incarnation, (
            "there is no reason for a recovery"
        )
        assert "has 3 nodes" in machine.command("rescale", "joined", "3")
        names = [node["name"] for node in machine.flow("joined")["nodes"]]
        assert names == ["node-1", "node-2", "node-3"]
        machine.kill("node")
        clocks.set("node", 2 * DAY_S)
        clocks.start(machine, "node")
        machine.all_run()
        assert "has 2 nodes" in machine.command("rescale", "joined", "2")
        machine.kill("master")
        clocks.start(machine, "master")
        paced.unlink()
        machine.over("joined")
        assert machine.flow("joined")["state"] == "complete"
        assert matches_reference(machine)
        assert "is over" in machine.command("rescale", "joined", "3", status=1)
        log_lines = [line for line in machine.logs().splitlines() if line.startswith("{")]
    days = {json.loads(line)["time"].partition("T")[0] for line in log_lines}
    assert len(days) > 3, "log lines show the clock jumps"
