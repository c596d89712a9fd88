"""Flows of a cluster on one machine, from submission to the end: real agents, real commands."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from driftline import Producer
from tests.deploy.cluster.machine import ALL, Machine
from tests.zookeepers import Ensemble

ADDED = """
from driftline import Flow, ReducingState

def add(total, n):
    return total + n

def key(record):
    return record["key"]

def count(record, total):
    print("seen", record["n"])
    return [record["key"], total.add(record["n"])]

flow = Flow("added")
flow.source("numbers").key_by(key).scan(count, ReducingState("total", add)).sink("sums")
"""

NEEDS = """
import helper_of_flow
from driftline import Flow

flow = Flow("needs")
flow.source("numbers").map(helper_of_flow.doubled).sink("out")
"""

FAILS = """
from driftline import Flow

def divided(record):
    return 1 // (record["n"] - 2)

flow = Flow("fails")
flow.source("numbers").map(divided).sink("out")
"""


@pytest.fixture
def machine(tmp_path: Path, zookeeper: Ensemble) -> Iterator[Machine]:
    (tmp_path / "in.jsonl").write_text('{"n": 1}\n{"n": 2}\n{"n": 3}\n')
    with Machine(tmp_path, zookeeper) as machine:
        yield machine


def submit(machine: Machine, flow: str, text: str, *options: object, status: int = 0) -> str:
    """Submit a flow with this source code; its output directory has the flow's name."""
    (machine.folder / f"{flow}.py").write_text(text)
    where = "--output", machine.folder / f"out-{flow}"
    return machine.command("submit", f"{flow}.py", *where, *options, status=status)


def values(machine: Machine, flow: str) -> list[object]:
    return machine.values(machine.folder / f"out-{flow}")


def test_flow_with_missing_module_retries_while_other_flows_run(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A flow whose function always fails ends with that error and affects no other flow."""
    folder, read = machine.folder, ("--input", machine.folder / "in.jsonl")
    helper = "def doubled(record):\n    return 2 * record['n']\n"
    (folder / "lib").mkdir()
    (folder / "lib" / "helper_of_flow.py").write_text(helper)
    with monkeypatch.context() as patch:  # the submitting user has the module, the hosts do not
        patch.syspath_prepend(folder / "lib")
        submit(machine, "needs", NEEDS, *read)
    submit(machine, "fails", FAILS, *read)
    machine.until(lambda: len(machine.flow("needs")["problems"]) == 3, "problems of all agents")
    problems = machine.flow("needs")["problems"]
    assert {text.partition(":")[0] for text in problems} == {"front", "master", "node"}
    assert all("No module named 'helper_of_flow'" in text for text in problems)
    machine.over("fails")
    assert machine.flow("fails")["state"].startswith("failed: FunctionFailed: operator 'map-1'")
    message = "flow fails has failed: FunctionFailed: operator 'map-1'"
    machine.until(lambda: message in machine.log("master"), message)
    assert machine.flow("needs")["problems"], (
        "the problem is reported until it is solved, and at each retry"
    )
    (folder / "helper_of_flow.py").write_text(helper)
    machine.over("needs")
    assert values(machine, "needs") == [2, 4, 6]


def test_flow_on_one_agent_resumes_after_stop_cancel_and_code_change(
    tmp_path: Path, zookeeper: Ensemble
) -> None:
    with Machine(tmp_path, zookeeper, ALL) as machine:
        _stop_cancel_and_change(machine)


def _stop_cancel_and_change(machine: Machine) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    sums: list[object] = []
    total = 0

    def send(first: int, last: int) -> None:
        """Send records and wait for their outputs."""
        nonlocal total
        with Producer(address, "p", timeout_s=60) as producer:
            for n in range(first, last):
                producer.send({"key": "a", "n": n})
            producer.flush()
        for n in range(first, last):
            total += n
            sums.append(["a", total])
        machine.until(lambda: len(values(machine, "added")) >= len(sums), "all outputs")
        assert values(machine, "added") == sums

    options = "--input", address, "--snapshot-interval-ms", 100_000
    submit(machine, "added", ADDED, *options)
    send(1, 4)
    twice = submit(machine, "added", ADDED, *options, status=1)
    assert "runs already: `driftline stop added`" in twice
    assert "runs: `driftline stop added` ends it first" in machine.command(
        "remove", "added", status=1
    )
    assert "added has ended: drained on request" in machine.command("stop", "added")
    assert machine.flow("added")["state"] == "drained on request"
    changed = ADDED.replace("total + n", "n + total")
    refused = submit(machine, "added", changed, *options, status=1)
    assert "the code of operator" in refused
    assert "--accept-changed-code" in refused
    submit(machine, "added", changed, *options, "--accept-changed-code")
    send(4, 6)
    machine.until(lambda: " added/node-0 seen 5\n" in machine.log("all"), "the last printed line")
    printed = machine.log("all")
    seen = [printed.count(f" added/node-0 seen {n}\n") for n in (1, 3, 5)]
    assert seen == [1, 1, 1], "no replay after a stop"
    machine.kill("all")
    machine.start("all")
    send(6, 8)
    assert "cancelled" in machine.command("cancel", "added")
    assert machine.flow("added")["state"] == "cancelled"
    submit(machine, "added", changed, *options)
    send(8, 10)
    machine.command("stop", "added")
    machine.command("remove", "added")
    assert machine.status()["flows"] == []
