"""A full disk of any agent: the flow waits, status says for what, and it goes on with room."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count, islice
from pathlib import Path

import pytest

from driftline.deploy.producer import Producer
from tests.deploy.cluster.machine import Machine
from tests.deploy.local.full_disk import SmallDisk, small_disk
from tests.zookeepers import Ensemble

FLOW = """
from driftline import Flow, ValueState

def joined(record, text):
    text.set((text.get() or "")[-2000:] + record["text"])
    return {"number": record["number"], "text": text.get()}

flow = Flow("joined")
flow.source("records").key_by(lambda r: r["number"] % 7).scan(joined, ValueState("t")).sink("texts")
"""

RECORDS = 100
"""How many are sent while each disk is full."""

PLACES = {"node": "node", "front": "front", "out": "out"}
"""Disk -> a word of the path that status has to name."""


@pytest.fixture
def disks(tmp_path: Path) -> Iterator[dict[str, SmallDisk]]:
    found: dict[str, SmallDisk] = {}
    with ExitStack() as stack:
        for name in PLACES:
            disk = stack.enter_context(small_disk(tmp_path / name))
            if disk is None:
                pytest.skip("this process may not mount a file system: it takes root")
            found[name] = disk
        yield found


def test_flow_resumes_after_a_full_disk_on_each_agent(
    tmp_path: Path, zookeeper: Ensemble, disks: dict[str, SmallDisk]
) -> None:
    (tmp_path / "flow.py").write_text(FLOW)
    with Machine(tmp_path, zookeeper) as machine:
        machine.command("submit", "flow.py", "--input", "tcp://127.0.0.1:0", "--output",
                        tmp_path / "out", "--checkpoint-ms", "200")  # fmt: skip
        machine.until(lambda: bool(machine.listening()), "the front")
        with Producer(machine.listening()[0], "p", timeout_s=100) as producer:
            numbers = count(1)

            def send() -> None:
                for number in islice(numbers, RECORDS):
                    producer.send({"number": number, "text": f"{number} " * 100})
                producer.flush()

            send()
            for name, disk in disks.items():
                machine.until(lambda: machine.flow("joined")["state"] == "running", "it runs")
                disk.fill()
                sender = threading.Thread(target=send)
                sender.start()
                machine.until(
                    lambda disk=disk: says_so(machine, disk.folder),  # type: ignore[misc]
                    f"status says that the disk of {name} is full",
                )
                disk.make_room()
                sender.join()
            total = producer.acknowledged
        assert total == RECORDS * (len(disks) + 1)
        machine.command("stop", "joined")
        assert machine.flow("joined")["state"] == "stopped normally"
    texts: dict[int, str] = {}
    expected = []
    for number in range(1, total + 1):
        before = texts.get(number % 7, "")[-2000:]
        texts[number % 7] = before + f"{number} " * 100
        expected.append({"number": number, "text": texts[number % 7]})
    lines = [
        json.loads(line)
        for file in (tmp_path / "out").glob("*.jsonl")
        for line in file.read_text().splitlines()
    ]
    assert [line["value"] for line in sorted(lines, key=lambda line: line["t"])] == expected


def says_so(machine: Machine, folder: Path) -> bool:
    told = machine.flow("joined")["obstacles"]
    return any("No space left on device" in each and str(folder) in each for each in told)
