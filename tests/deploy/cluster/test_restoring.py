"""Flows that start in a cluster from a savepoint, and flows whose code comes in a wheel."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from driftline.deploy.producer import Producer
from tests.deploy.cluster.machine import ALL, Machine
from tests.zookeepers import Ensemble

FLOW = """
from driftline import Flow, ValueState

def count(record, seen):
    seen.set((seen.get() or 0) + 1)
    return {"key": record["key"], "count": seen.get()}

flow = Flow("counts")
counts = flow.source("records").key_by("key").scan(count, ValueState("seen"), name="count")
counts.sink("counts")
"""


RECORDS = 100


@pytest.fixture
def machine(tmp_path: Path, zookeeper: Ensemble) -> Iterator[Machine]:
    with Machine(tmp_path, zookeeper, ALL) as machine:
        yield machine


def write(folder: Path, records: int) -> Path:
    file = folder / "in.jsonl"
    file.write_text("".join(json.dumps({"key": n % 7}) + "\n" for n in range(records)))
    return file


def counted(first: int, last: int) -> list[object]:
    return [{"key": n % 7, "count": n // 7 + 1} for n in range(first, last)]


def snapshot_time(machine: Machine) -> int:
    """Return the time of the last snapshot; 0 if there is none."""
    return int((machine.flow("counts")["last_snapshot"] or {"time": 0})["time"])


def ordered(values: list[object]) -> list[str]:
    return sorted(map(json.dumps, values))


def test_savepoint_of_a_running_flow_starts_another_flow(machine: Machine) -> None:
    """A wheel carries the code of the flow to the hosts."""
    folder = machine.folder
    wheel = folder / "counting-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("counting_flow.py", FLOW)
        about = "counting-1.0.dist-info"
        archive.writestr(f"{about}/METADATA", "Name: counting\nVersion: 1.0\n")
        archive.writestr(f"{about}/WHEEL", "Root-Is-Purelib: true\n")
    live = "records=tcp://127.0.0.1:0"
    machine.command("submit", "counting_flow", "--wheel", wheel, "--input", live,
                    "--output", machine.output, "--nodes", "2",
                    "--snapshot-interval-ms", "100")  # fmt: skip
    wheel.rename(folder / "flow.whl")
    machine.until(lambda: len(machine.listening()) == 1, "a live input")
    with Producer(machine.listening()[0], "p") as producer:
        for n in range(RECORDS):
            producer.send({"key": n % 7})
        producer.flush()
    machine.until(lambda: len(machine.values()) == RECORDS, "all outputs")
    frontier = machine.flow("counts")["frontier"]
    machine.until(lambda: snapshot_time(machine) >= frontier, "a snapshot")
    report = folder / "saved.json"
    printed = machine.command("savepoint", "counts", "--output", "saved", "--json", report)
    assert "the state before" in printed
    assert "Records that producers send after the savepoint are only in flow counts" in printed
    assert json.loads(report.read_text())["savepoint"] == "saved"
    machine.command("rescale", "counts", "3")
    assert "the state before" in machine.command("savepoint", "counts", "--output", "again")
    machine.command("cancel", "counts")
    late = machine.command("savepoint", "counts", "--output", "late", status=1)
    assert "does not run" in late
    (folder / "flow.py").write_text(FLOW)
    for saved in ("saved", "again"):
        output = folder / f"from-{saved}"
        machine.command("submit", "flow.py", "--from-savepoint", saved,
                        "--input", live, "--output", output,
                        "--name", saved)  # fmt: skip
        listening = 2 if saved == "saved" else 3
        machine.until(lambda: len(machine.listening()) == listening, "it listens")  # noqa: B023
        with Producer(machine.listening()[-1], "q") as producer:
            for n in range(RECORDS, 2 * RECORDS):
                producer.send({"key": n % 7})
            producer.flush()
        machine.command("stop", saved)
        assert ordered(machine.values(output)) == ordered(counted(RECORDS, 2 * RECORDS))
