"""A run waits while its disk is full, and logs a short account that names the directory."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from driftline.deploy.producer import Producer
from tests.deploy.local.full_disk import SmallDisk, small_disk
from tests.deploy.local.run_copies import wait_until
from tests.deploy.local.test_log import Line, LoggedRun

STORY_LINES_MAX = 10
RECORDS = 300
ROUTINE_EVENTS = "progress", "run-ended", "log-file"
LIVE = "tcp://127.0.0.1:0"
OPTIONS = "--nodes", "2", "--log-level", "debug"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with small_disk(tmp_path / "disk") as disk:
        if disk is None:
            pytest.skip("this process may not mount a file system: it takes root")
        yield disk


def address(run: LoggedRun) -> str:
    return str(run.until("input")["message"]).rpartition(" on ")[2].split()[0].strip(",;")


def story_of(run: LoggedRun) -> list[Line]:
    """Return the log lines since the first failure, without routine events and debug lines.

    A stall is logged repeatedly, at growing intervals; its lines count once.
    """
    events = [line["event"] for line in run.lines]
    story = run.lines[events.index("job-failed") :]
    again = [line for line in story if line["event"] == "standstill"][1:]
    return [
        line for line in story
        if line["event"] not in ROUTINE_EVENTS and line["level"] != "debug"
        and line not in again
    ]  # fmt: skip


def names(run: LoggedRun, event: str) -> list[str]:
    """Return the names of the roles with this event."""
    return sorted(str(line["fields"]["name"]) for line in run.events(event))


def outputs_are_complete(run: LoggedRun) -> bool:
    """Return whether each record has exactly one output."""
    lines = [line for file in run.output.glob("*.jsonl") for line in file.read_text().splitlines()]
    return len(lines) == len(set(lines)) == RECORDS


def send(to: str, first: int, last: int) -> None:
    with Producer(to, f"p{first}", timeout_s=100) as producer:
        for number in range(first, last):
            producer.send({"id": number, "text": "x" * 1000})
        producer.flush()


def test_run_survives_full_disk_twice_even_during_shutdown(tmp_path: Path, disk: SmallDisk) -> None:
    """The log file is on the full disk, too."""
    state, log = disk.folder / "state", disk.folder / "log"
    options = *OPTIONS, "--state", str(state), "--log-file", str(log)
    with LoggedRun(tmp_path, "flow", 0, *options, source=LIVE) as run:
        place = address(run)
        send(place, 0, RECORDS // 2)
        run.until("snapshot")
        disk.fill()
        sender = threading.Thread(target=send, args=(place, RECORDS // 2, RECORDS))
        sender.start()
        waits = run.until("standstill")["fields"]["reason"]
        assert f"cannot write records to its input log: input log {state / 'input-0'}" in waits
        assert "No space left on device" in waits
        assert str(state) in run.until("progress", undelivered=1)["fields"]["state"]
        disk.make_room()
        sender.join()
        run.until("standstill-over")
        wait_until(lambda: names(run, "job-failed") == names(run, "job-failed-over"), "all writes")
        story = story_of(run)
        assert len(story) <= STORY_LINES_MAX, "\n".join(str(line["message"]) for line in story)
        failed = names(run, "job-failed")
        assert len(set(failed)) == len(failed), "each failure is logged once"
        before = len(run.events("standstill"))
        disk.fill()
        run.process.send_signal(signal.SIGTERM)
        wait_until(lambda: len(run.events("standstill")) > before, "the run says what it waits for")
        waits = run.events("standstill")[before]["fields"]["reason"]
        assert str(state) in waits, (
            "a node's directory, or the registry if the snapshot was written"
        )
        assert "asked to end" in waits or "writing how the run ended" in waits
        disk.make_room()
        assert run.end() == 128 + signal.SIGTERM, run.raw_lines
        assert str(log) in run.events("log-file")[0]["message"]
        assert log.read_text().splitlines()[-1] == run.raw_lines[-1].rstrip()
        assert not run.events("process-died")
        assert outputs_are_complete(run)
