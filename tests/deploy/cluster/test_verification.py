"""`driftline verify` of a cluster flow, with real agents: intact, damaged, and on another host."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from driftline import Producer
from driftline.deploy.cluster.verification import verify_flow
from driftline.deploy.cluster.zookeeper_tree import ZooKeeperTree
from driftline.engine.errors import Unavailable
from tests.deploy.cluster.machine import Machine
from tests.zookeepers import SESSION_S, Ensemble

FLOW = """
import operator
from driftline import Flow, ReducingState
flow = Flow("sums")
both = flow.source("live").union(flow.source("file").map(lambda record: record["n"]))
both.key_by(lambda n: n % 5).scan(
    lambda n, total: total.add(n), ReducingState("total", operator.add)
).sink("out")
"""


@pytest.fixture
def machine(tmp_path: Path, zookeeper: Ensemble) -> Iterator[Machine]:
    """Provide a cluster in which a flow has completed."""
    (tmp_path / "flow.py").write_text(FLOW)
    (tmp_path / "in.jsonl").write_text("".join(f'{{"n": {n}}}\n' for n in range(100)))
    with Machine(tmp_path, zookeeper) as machine:
        machine.command("submit", "flow.py", "--input", "live=tcp://127.0.0.1:0", "--input",
                        "file=in.jsonl", "--nodes", 2, "--output", machine.output)  # fmt: skip
        machine.until(lambda: bool(machine.listening()), "it listens")
        with Producer(machine.listening()[0], "p", timeout_s=60) as producer:
            for number in range(50):
                producer.send(number)
            producer.flush()
        machine.until(lambda: len(machine.values()) == 150, "all outputs")
        machine.command("stop", "sums")
        yield machine


def test_verify_checks_the_files_of_a_flow_on_its_host(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    verdict = tmp_path / "verdict.json"
    right = machine.command("verify", "sums", "--json", verdict).splitlines()
    assert [line.split()[0] for line in right[:-1]] == ["ok"] * 6
    assert right[-1].startswith("drained on request, before the end of the input; ")
    found = json.loads(verdict.read_text())
    assert {each["role"] for each in found["checked"]} == {
        "node-0", "node-1", "output-0", "output-1", "input-0", "used-1",
    }  # fmt: skip
    assert (found["problems"], found["note"]) == ([], "")

    with closing(ZooKeeperTree(machine.zookeeper, SESSION_S)) as tree:
        output = next(machine.output.glob("out-*.jsonl"))
        before = output.read_bytes()
        output.write_bytes(before[:-20] + b"x" + before[-19:])
        damaged = verify_flow(tree, "sums")
        assert any(report.damage for report in damaged.checked)
        assert str(output) in str(damaged.problems)
        output.write_bytes(before)

        log = tmp_path / "front" / "flows" / "sums" / "input-0"
        shutil.move(log, tmp_path / "aside")
        gone = str(verify_flow(tree, "sums").problems)
        assert f"{log} (the log of input 0) is empty or missing" in gone
        assert "`driftline remove sums` says what to remove" in gone
        assert "--fresh" not in gone
        shutil.move(tmp_path / "aside", log)

        machine.kill("front")
        away = "input-0, input-1: agent front is not running; start it, then verify on its host"
        machine.until(lambda: away in verify_flow(tree, "sums").note, "its session ends")
        monkeypatch.setattr("socket.gethostname", lambda: "another")
        host = os.uname().nodename
        message = (
            r"directories of flow 'sums':\n"
            rf"  node-0, .*: agent node, on host {host}; run this command there"
        )
        with pytest.raises(Unavailable, match=message):
            verify_flow(tree, "sums")
    machine.place = ()
    refusal = machine.command("verify", "sums", status=2)
    assert "is not a directory; for a flow of a cluster give its ZooKeeper" in refusal
