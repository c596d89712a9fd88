"""A flow in a cluster comes to other numbers of nodes while it runs, by command and by itself."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest

from driftline import run_reference
from driftline.engine.flow.loading import load_flow
from tests.deploy.cluster.machine import Machine
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


@pytest.fixture
def machine(tmp_path: Path, zookeeper: Ensemble) -> Iterator[Machine]:
    (tmp_path / "paced").touch()
    (tmp_path / "flow.py").write_text(FLOW.replace("PACED", repr(str(tmp_path / "paced"))))
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(record) + "\n" for record in RECORDS))
    with Machine(tmp_path, zookeeper) as machine:
        yield machine


def as_it_must_be(machine: Machine) -> bool:
    """Whether the outputs are those of the reference interpreter, in its order for each key."""
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


def test_flow_rescales_despite_kills(machine: Machine) -> None:
    given = "flow.py", "--input", "in.jsonl", "--output", machine.output, "--window", "100"
    machine.command("submit", *given, "--nodes", "1", "--checkpoint-ms", "300")
    machine.until(lambda: bool(machine.values()), "outputs")
    assert "has 3 nodes" in machine.command("rescale", "joined", "3")
    names = [node["name"] for node in machine.flow("joined")["nodes"]]
    assert names == ["node-1", "node-2", "node-3"]
    machine.kill("node")
    machine.start("node")
    machine.all_run()
    assert "has 2 nodes" in machine.command("rescale", "joined", "2")
    machine.kill("master")
    machine.start("master")
    (machine.folder / "paced").unlink()
    machine.over("joined")
    assert machine.flow("joined")["state"] == "complete"
    assert as_it_must_be(machine)
    assert "is over" in machine.command("rescale", "joined", "3", status=1)
