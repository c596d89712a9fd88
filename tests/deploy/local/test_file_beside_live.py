"""A file beside producers: a run that is asked to end leaves records for the next call."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from driftline import Producer
from tests.deploy.local.run_copies import LIMIT_S, ROOT, wait_until

FLOW = """
from driftline import Flow

flow = Flow("beside")
flow.source("file").map(lambda record: record["text"]).sink("of-file")
flow.source("live").map(lambda record: record["text"]).sink("of-live")
"""

IN_FILE, LIVE = 40_000, 500


class Calls:
    """Calls of one command, with the report of each."""

    def __init__(self, directory: Path, policy: str) -> None:
        (directory / "beside.py").write_text(FLOW)
        (directory / "in.jsonl").write_text('{"text": "of the file"}\n' * IN_FILE)
        self.output, self.report = directory / "out", directory / "report.json"
        self.words = [sys.executable, "-m", "driftline", "run", str(directory / "beside.py"),
                      "--input", str(directory / "in.jsonl"), "--input", "tcp://127.0.0.1:0",
                      "--output", str(self.output), "--json", str(self.report), "--policy",
                      policy]  # fmt: skip

    def start(self) -> tuple[subprocess.Popen[str], str]:
        """Returns the process, and the address for producers."""
        process = subprocess.Popen(self.words, cwd=ROOT, stderr=subprocess.PIPE, text=True)
        assert process.stderr is not None
        for line in process.stderr:
            if "listening for producers on " in line:
                return process, line.strip().rpartition(" ")[2]
        raise AssertionError("the run has not begun")

    def lines(self, sink: str) -> int:
        files = self.output.glob(f"{sink}-*.jsonl")
        return sum(file.read_bytes().count(b"\n") for file in files)


@pytest.mark.parametrize(
    "policy", ["exactly-once", pytest.param("at-least-once", marks=pytest.mark.soak)]
)
def test_live_records_that_wait_are_delivered_by_the_next_call(tmp_path: Path, policy: str) -> None:
    calls = Calls(tmp_path, policy)
    process, address = calls.start()
    with Producer(address, "p") as producer:
        for _ in range(LIVE):
            producer.send({"text": "live"})
        producer.flush()
        wait_until(lambda: calls.lines("of-file") > 0, "outputs")
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 143, said
    first = json.loads(calls.report.read_text())
    of_file, of_live = calls.lines("of-file"), calls.lines("of-live")
    assert 0 < of_file < IN_FILE
    assert first["outputs"] == of_file + of_live

    process, address = calls.start()
    with Producer(address, "p") as producer:
        producer.send({"text": "live"})
        producer.end()
    _, said = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0, said
    second = json.loads(calls.report.read_text())
    assert first["outputs"] + second["outputs"] == IN_FILE + LIVE + 1
    assert (calls.lines("of-file"), calls.lines("of-live")) == (IN_FILE, LIVE + 1)
