"""A signal ends a run cleanly: nothing is replayed later, lost or duplicated."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from driftline import Producer
from driftline.engine.errors import Unavailable
from tests.deploy.local.command import ROOT, count_lines
from tests.deploy.local.run_copies import wait_until

FLOW = """
import operator
from driftline import Flow, ReducingState

flow = Flow("counts")
words = flow.source("lines").flat_map(lambda line: line["text"].split()).key_by(lambda word: word)
words.scan(lambda word, total: (word, total.add(1)), ReducingState("total", operator.add)).sink("c")
"""

RECORDS = 4_000


class RepeatedRun:
    """Repeated calls of `driftline run` on one directory, with the report of each call."""

    def __init__(self, directory: Path, *arguments: str, flow: str = FLOW) -> None:
        (directory / "counts.py").write_text(flow)
        self.output = directory / "out"
        self.report = directory / "report.json"
        self.words = [sys.executable, "-m", "driftline", "run", str(directory / "counts.py")]
        self.words += ["--output", str(self.output), "--json", str(self.report)]
        self.words += arguments

    def start(self, stdin: int = subprocess.DEVNULL) -> subprocess.Popen[str]:
        self.report.unlink(missing_ok=True)
        return subprocess.Popen(
            self.words, cwd=ROOT, stdin=stdin, stderr=subprocess.PIPE, text=True,
            start_new_session=True,
        )  # fmt: skip

    def await_outputs(self, process: subprocess.Popen[str], count: int = 1) -> None:
        wait_until(
            lambda: process.poll() is not None or count_lines(self.output) >= count, "outputs"
        )
        assert process.poll() is None, process.communicate()[1]

    def finish(self, process: subprocess.Popen[str], status: int) -> int:
        """Wait for the end of a call and return the number of records that it has sent to nodes."""
        _, log_text = process.communicate(timeout=120)
        assert process.returncode == status, log_text
        if status and not self.report.exists():
            return 0  # the signal came before a clean shutdown was possible
        report = json.loads(self.report.read_text())
        assert report["restarts"] == 0
        return int(report["records"])

    def lines(self) -> list[str]:
        return [
            line
            for file in self.output.glob("*.jsonl")
            for line in file.read_text().rpartition("\n")[0].splitlines()
        ]

    def highest_counts(self) -> Counter[str]:
        """Return the highest count of each word; check that no output is duplicated."""
        found: Counter[str] = Counter()
        values = [json.loads(line)["value"] for line in self.lines()]
        assert len(values) == len({(word, count) for word, count in values})
        for word, count in values:
            found[word] = max(found[word], count)
        return found


def text(number: int) -> str:
    return f"a b{number % 7} c{number}"


def texts(count: int) -> list[str]:
    return [text(number) for number in range(count)]


def expected(count: int) -> Counter[str]:
    return Counter(word for line in texts(count) for word in line.split())


def test_the_next_run_replays_nothing(tmp_path: Path) -> None:
    """All processes receive the signal, as a terminal or systemd sends it."""
    (tmp_path / "in.jsonl").write_text(
        "".join(json.dumps({"text": line}) + "\n" for line in texts(RECORDS))
    )
    command = RepeatedRun(tmp_path, "--input", str(tmp_path / "in.jsonl"), "--nodes", "2",
                      "--snapshot-interval-ms", "400")  # fmt: skip
    process = command.start()
    command.await_outputs(process)
    os.killpg(process.pid, signal.SIGTERM)
    first = command.finish(process, 128 + signal.SIGTERM)
    assert 0 < first < RECORDS
    delivered = sum(command.highest_counts().values())
    assert delivered == sum(expected(first).values()), "all records that were read are delivered"
    rest = command.finish(command.start(), 0)
    assert first + rest == RECORDS
    assert command.highest_counts() == expected(RECORDS)


def test_acknowledged_producer_records_are_delivered_before_shutdown(tmp_path: Path) -> None:
    command = RepeatedRun(tmp_path, "--input", "tcp://127.0.0.1:0", "--nodes", "2",
                      "--snapshot-interval-ms", "300")  # fmt: skip
    sent = 0
    records = 0
    for _ in range(2):
        before = count_lines(command.output)
        process = command.start()
        address = _address(process)
        stop = threading.Event()

        def feed(address: str = address, stop: threading.Event = stop) -> int:
            """Send until the run ends and return the number of stored records."""
            producer = Producer(address, "upstream")
            producer.timeout_s = 2  # the run may have ended when it sends
            try:
                while not stop.is_set():
                    producer.send({"text": text(producer.sequence)})
                producer.flush()
            except Unavailable:
                pass  # the run has ended
            finally:
                producer.close()
            return producer.acknowledged

        with _Thread(feed) as upstream:
            command.await_outputs(process, before + 300)
            process.send_signal(signal.SIGTERM)
            records += command.finish(process, 143)
            stop.set()
        sent = max(sent, upstream.result)
        # Records without a received acknowledgement may have been delivered, too.
        assert sent <= records
        assert command.highest_counts() == expected(records)


def test_pipe_closed_by_the_signal_does_not_end_the_stream(tmp_path: Path) -> None:
    """Ctrl-C also ends the program before the pipe, even while nodes are starting."""
    command = RepeatedRun(tmp_path, "--input", "-.txt")
    lines = "".join(line + "\n" for line in texts(400)).encode()
    process = command.start(subprocess.PIPE)
    assert process.stdin is not None
    os.write(process.stdin.fileno(), lines[:2_001])  # the last line is incomplete
    _read_until(process, "started master")
    process.send_signal(signal.SIGINT)
    process.stdin.close()
    process.stdin = None
    first = command.finish(process, 130)
    with (tmp_path / "whole.txt").open("wb+") as whole:
        whole.write(lines)
        whole.seek(0)
        rest = command.finish(command.start(whole.fileno()), 0)
    assert first + rest == 400
    assert command.highest_counts() == expected(400)


def test_second_signal_ends_a_run_whose_shutdown_is_blocked(tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("one\n")
    flow = tmp_path / "stuck.py"
    flow.write_text(
        "import select\nfrom driftline import Flow\nflow = Flow('stuck')\n"
        "flow.source('lines').map(lambda line: select.select([], [], [])).sink()\n"
    )
    command = [sys.executable, "-m", "driftline", "run", str(flow), "--input",
               str(tmp_path / "in.txt"), "--output", str(tmp_path / "out"), "--slow-after",
               "1"]  # fmt: skip
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    _read_until(process, "has been busy for")
    process.send_signal(signal.SIGTERM)
    _read_until(process, "Another signal ends the run at once")
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=20)
    assert process.returncode == 143


class _Thread(threading.Thread):
    """Thread with a result; joined at the end of its block."""

    def __init__(self, work: Callable[[], int]) -> None:
        super().__init__(daemon=True)
        self._work = work
        self.result = 0

    def run(self) -> None:
        self.result = self._work()

    def __enter__(self) -> _Thread:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.join(30)


def _read_until(process: subprocess.Popen[str], text: str) -> str:
    assert process.stderr is not None
    for line in process.stderr:
        if text in line:
            return line
    raise AssertionError(f"{text!r} was not said")


def _address(process: subprocess.Popen[str]) -> str:
    line = _read_until(process, "listening for producers on ")
    return line.strip().rpartition(" ")[2]
