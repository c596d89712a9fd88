"""A hung process is replaced and reported; the outputs are the same."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from time import monotonic

import pytest

from driftline import Producer
from driftline.engine.errors import Unavailable

ROOT = Path(__file__).resolve().parents[3]

FLOW = """
from driftline import Flow, ValueState

def count(record, total):
    total.set((total.get() or 0) + 1)
    return [record["id"], total.get()]

flow = Flow("counts")
flow.source("records").key_by(lambda r: r["id"] % 7).scan(count, ValueState("n")).sink()
"""

BATCH = 300
LIMIT_S = 60.0


class ProducerRun:
    """Run fed by a producer of the test, whose log is read meanwhile."""

    def __init__(self, directory: Path, *options: str, flow: str = FLOW) -> None:
        (directory / "counts.py").write_text(flow)
        self.output = directory / "out"
        self.lines: list[dict[str, object]] = []
        self._rest = b""
        address = f"ipc://{directory}/in"
        self.process = subprocess.Popen(
            [
                sys.executable, "-m", "driftline", "run", str(directory / "counts.py"), "--nodes",
                "2", "--input", address, "--output", str(self.output), "--log-json",
                "--missing-after", "1", "--snapshot-interval-ms", "100", *options,
            ],
            cwd=ROOT, stderr=subprocess.PIPE,
        )  # fmt: skip
        self.producer = Producer(address, "ours", window=100_000)
        self.sent = 0

    def send(self, count: int = BATCH) -> None:
        for number in range(self.sent, self.sent + count):
            self.producer.send({"id": number})
        self.sent += count

    def events(self, event: str, **fields: object) -> list[dict[str, object]]:
        """Return the lines of an event so far."""
        stderr = self.process.stderr
        assert stderr is not None
        while select.select([stderr], [], [], 0.05)[0] and (data := os.read(stderr.fileno(), 9999)):
            *whole, self._rest = (self._rest + data).split(b"\n")
            parsed = map(json.loads, whole)
            self.lines += [
                {
                    "event": line["event"],
                    "said": line["message"],
                    "process": line["process"],
                    **line["fields"],
                }
                for line in parsed
            ]
        fields["event"] = event
        return [line for line in self.lines if fields.items() <= line.items()]

    def wait(self, condition: Callable[[], object], what: str) -> None:
        deadline = monotonic() + LIMIT_S
        while not condition():
            log_text = "\n".join(map(str, self.lines))
            assert monotonic() < deadline, f"not within {LIMIT_S} s: {what}\n{log_text}"
            self.events("")
            with suppress(Unavailable):  # the producer resends meanwhile, if it has to
                self.producer.flush(0.01)

    def values(self) -> list[tuple[int, int]]:
        return sorted(
            (number, count)
            for file in self.output.glob("*.jsonl")
            for line in file.read_text().rpartition("\n")[0].splitlines()
            for number, count in [json.loads(line)["value"]]
        )

    def await_outputs(self) -> None:
        self.wait(lambda: len(self.values()) >= self.sent, "all outputs")

    def pid(self, name: str) -> int:
        again = self.events("process-started", name=name)
        pid = again[-1]["pid"] if again else self.events("processes-started")[0][name]
        assert isinstance(pid, int)
        return pid

    def stop(self, name: str) -> int:
        pid = self.pid(name)
        os.kill(pid, signal.SIGSTOP)
        return pid

    def check_clean_end(self) -> None:
        """Wait for the end; check that the outputs are those of a run without failures."""
        self.wait(lambda: self.process.poll() is not None, "the end")
        assert self.process.returncode == 128 + signal.SIGTERM, self.lines
        expected = {(i, i // 7 + 1) for i in range(self.sent)}
        values = self.values()
        assert not set(values) ^ expected, (sorted(set(values) ^ expected)[:9], self.lines)
        assert len(values) == len(expected)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[ProducerRun]:
    run = ProducerRun(tmp_path)
    try:
        run.send()
        run.await_outputs()
        yield run
    finally:
        run.producer.close()
        run.process.kill()
        run.process.wait()


def test_hung_processes_are_replaced_even_during_shutdown(
    served: ProducerRun,
) -> None:
    pid = served.stop("node-1")
    served.send()
    served.await_outputs()
    assert len(served.events("process-silent", name="node-1", pid=pid)) == 1
    [hung] = served.events("process-hung", name="node-1", pid=pid)
    assert 10 < float(str(hung["seconds"])) < 20
    assert len(served.events("process-died", name="node-1", pid=pid)) == 1
    pids = {name: served.stop(name) for name in ("master", "node-0")}
    served.send()
    served.producer.flush(LIMIT_S)
    served.process.send_signal(signal.SIGTERM)
    served.check_clean_end()
    for name, pid in pids.items():
        assert served.events("process-hung", name=name, pid=pid)
        assert len(served.events("process-silent", name=name, pid=pid)) == 1
