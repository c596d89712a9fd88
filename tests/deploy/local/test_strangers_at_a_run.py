"""Real runs with unauthorised peers: a proper producer is not affected, and memory is bounded."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Sized
from pathlib import Path
from time import sleep
from typing import TypedDict

import pytest

from driftline.deploy.local.config import check_input
from driftline.deploy.producer import Producer
from driftline.engine.errors import FlowError
from driftline.engine.wire.codec import RECORD_BYTES_MAX, RECORD_DEPTH_MAX, pack
from tests.deploy.local.command import call
from tests.deploy.local.run_copies import (
    FLOW,
    RunPlace,
    free_port,
    kill,
    signal_all,
)
from tests.engine.wire.test_codec import nested

SIZES = """
from driftline import Flow, ValueState

def depth(value):
    return 1 + depth(value[0]) if isinstance(value, (tuple, list)) else 0

def measured(context, record, last):
    before = last.get(None)
    last.set(record)
    yield record["id"], len(record["value"]), depth(record["value"]), before and before["id"]

flow = Flow("sizes")
flow.source("records").key_by("key").process(measured, ValueState("last")).sink("sizes")
"""


class Record(TypedDict):
    """Record of the flow `sizes`."""

    id: int
    key: str
    value: Sized


def records() -> list[Record]:
    """Return records at the limits for both nodes: large, deep, with numbers as keys."""
    found: list[Record] = []
    for key in "abcd":
        room = RECORD_BYTES_MAX - len(pack(Record(id=len(found), key=key, value=bytes(1 << 16))))
        deep = [nested(RECORD_DEPTH_MAX - 2, "list")]
        for value in (bytes(room + (1 << 16)), deep, {n: n / 2 for n in range(2000)}):
            found.append(Record(id=len(found), key=key, value=value))
    return found


def test_records_at_the_limits_pass_through_a_run_and_its_recovery(tmp_path: Path) -> None:
    """Kill one of two nodes, then all processes, and start the run again."""
    flow = tmp_path / "sizes.py"
    flow.write_text(SIZES)
    address = f"tcp://127.0.0.1:{free_port()}"
    command = [sys.executable, "-m", "driftline", "run", str(flow), "--input", address, "--output"]
    command += [str(tmp_path / "out"), "--nodes", "2", "--snapshot-interval-ms", "200"]
    sent = records()

    def start(*more: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*command, *more], stderr=subprocess.PIPE, text=True, start_new_session=True
        )

    def produce(until: int) -> None:
        with Producer(address, "p", timeout_s=60) as producer:
            for record in sent[producer.acknowledged : until]:
                producer.send(record)
            producer.flush()
            if until == len(sent):
                producer.end()

    process = start("--kill-every", "1")
    try:
        produce(len(sent) // 2)
        sleep(1.5)  # --kill-every has killed a process
        signal_all(process, signal.SIGKILL)
        process.communicate()
        process = start()
        produce(len(sent))
        _, log_text = process.communicate(timeout=90)
    finally:
        if process.poll() is None:
            kill(process)
    assert process.returncode == 0, log_text
    lines = [json.loads(line) for file in (tmp_path / "out").glob("*.jsonl")
             for line in file.read_text().splitlines()]  # fmt: skip
    assert [len(pack(record)) == RECORD_BYTES_MAX for record in sent[::3]] == [True] * 4
    found = sorted(line["value"] for line in lines)
    deep = RECORD_DEPTH_MAX - 1
    wanted = [
        [[number, len(record["value"]), 0, None], [number + 1, 1, deep, number],
         [number + 2, 2000, 0, number + 1]]
        for number, record in enumerate(sent) if number % 3 == 0
    ]  # fmt: skip
    assert found == [one for key in wanted for one in key]


@pytest.mark.parametrize(
    ("address", "fault"),
    [
        ("tcp://127.0.0.1", "it needs a port from 0 to 65535"),
        ("tcp://[::1]", "it needs a port from 0 to 65535"),
        ("tcp://*:70000", "it needs a port from 0 to 65535"),
        ("http://x", "unknown kind of address: it has to begin with tcp:// or ipc://"),
        ("ipc://", "it has no path"),
    ],
)
def test_invalid_listen_address_is_rejected(address: str, fault: str) -> None:
    with pytest.raises(FlowError) as error:
        check_input(0, address)
    assert str(error.value).startswith(f"cannot listen for producers on {address}: {fault}")
    for valid in ("tcp://[::1]:5555", "ipc:///tmp/here"):
        check_input(0, valid)


def test_listening_on_external_address_requires_an_option(tmp_path: Path) -> None:
    address = f"tcp://*:{free_port()}"
    refused = call("run", str(FLOW), "--input", address, "--output", str(tmp_path / "out"))
    assert refused.returncode == 1
    assert "other machines can connect to" in refused.stderr
    assert "--let-anyone-send" in refused.stderr
    assert "Traceback" not in refused.stderr
    place = RunPlace(tmp_path, "exactly-once", address)
    process = place.start("--let-anyone-send")
    try:
        with Producer(address.replace("*", "127.0.0.1"), "p") as producer:
            producer.send({"text": "a"})
            producer.end()
        _, log_text = process.communicate(timeout=60)
    finally:
        if process.poll() is None:
            kill(process)
    assert process.returncode == 0, log_text
