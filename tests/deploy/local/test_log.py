"""Log lines and figures of a run, as an operator sees them: real processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.local.command import ROOT, driftline

TIMEOUT_S = 120

FLOW = """
import sys, time
from driftline import Flow, ValueState

def count(record, total):
    time.sleep(0.01)
    if record["id"] == 3:
        print("a word of the user", file=sys.stderr, flush=True)
        print("said on stdout")
    total.set((total.get() or 0) + 1)
    return total.get()

flow = Flow("counts")
flow.source("records").key_by(lambda r: r["id"] % 7).scan(count, ValueState("n")).sink()
"""

Line = dict[str, Any]
"""Parsed JSON log line, in the documented form if the tests pass."""


class LoggedRun:
    """Run of the command whose log lines are read while it runs."""

    def __init__(
        self,
        directory: Path,
        flow: str,
        records: int,
        *options: str,
        source: str = "",
    ) -> None:
        """Start a run over `source`, or else over a file with this many records."""
        (directory / "flows.py").write_text(FLOW)
        records_file = directory / "in.jsonl"
        records_file.write_text("".join(json.dumps({"id": i}) + "\n" for i in range(records)))
        self.output = directory / "out"
        self.command = [
            sys.executable, "-m", "driftline", "run", f"{directory / 'flows.py'}:{flow}",
            "--input", source or str(records_file), "--output", str(self.output),
            "--snapshot-interval-ms", "100", "--log-json", *options,
        ]  # fmt: skip
        self.process = subprocess.Popen(self.command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
        self.raw_lines: list[str] = []
        self.over = False
        self._news = threading.Condition()
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            with self._news:
                self.raw_lines.append(line)
                self._news.notify_all()
        with self._news:
            self.over = True
            self._news.notify_all()

    @property
    def lines(self) -> list[Line]:
        """Return all lines so far, ordered by time."""
        return sorted(map(json.loads, self.raw_lines), key=lambda line: str(line["time"]))

    def events(self, name: str) -> list[Line]:
        return [line for line in self.lines if line["event"] == name]

    def until(self, event: str, **least: int | str) -> Line:
        """Wait for a line with this event and fields; numbers may be larger than given."""

        def lines() -> list[Line]:
            events = self.events(event)
            return [e for e in events if all(_fits(e["fields"][k], v) for k, v in least.items())]

        with self._news:
            self._news.wait_for(lambda: self.over or lines(), TIMEOUT_S)
        found = lines()
        assert found, f"no {event} in " + "".join(self.raw_lines)
        return found[0]

    def end(self) -> int:
        self._thread.join(TIMEOUT_S)
        return self.process.wait(TIMEOUT_S)

    def __enter__(self) -> LoggedRun:
        return self

    def __exit__(self, *error: object) -> None:
        self.process.kill()
        self._thread.join(TIMEOUT_S)


def _fits(value: Any, least: int | str) -> bool:
    return bool(value == least if isinstance(least, str) else value >= least)


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoggedRun]:
    """Run over 200 records, one of whose two nodes is killed once."""
    directory = tmp_path_factory.mktemp("killed")
    options = "--nodes", "2", "--log-level", "debug", "--log-file", str(directory / "log")
    with LoggedRun(directory, "flow", 200, *options, "--json", str(directory / "report")) as run:
        run.until("snapshot", time=50)
        os.kill(run.until("processes-started")["fields"]["node-1"], signal.SIGKILL)
        assert run.end() == 0, run.raw_lines
        yield run


def test_kill_is_logged_in_order_in_a_few_lines(killed: LoggedRun) -> None:
    log_lines = [
        line for line in killed.lines
        if line["level"] != "debug" and line["event"] not in ("progress", "print")
    ]  # fmt: skip
    events = [line["event"] for line in log_lines]
    first = events.index("process-died")
    in_order = "process-died", "process-started", "recovery", "load", "running"
    places = [events.index(event, first) for event in in_order]
    story = log_lines[first : places[-1] + 1]
    assert len(story) <= 7, story
    assert places == sorted(places), events
    by_event = {line["event"]: line for line in story}
    died = by_event["process-died"]["fields"]
    started = killed.until("processes-started")["fields"]
    assert (died["name"], died["pid"], died["status"]) == ("node-1", started["node-1"], -9)
    assert by_event["recovery"]["fields"]["reason"] == "node-1 has been restarted"
    assert by_event["load"]["fields"]["snapshot"] > 0
    since = by_event["load"]["fields"]["time"]
    after = killed.lines[killed.lines.index(by_event["load"]) :]
    loaded = {line["process"]: line["fields"] for line in after if line["event"] == "loaded"}
    assert loaded.keys() == {"node-0", "node-1"}
    assert sum(fields["keys"] for fields in loaded.values()) == 7
    assert all(fields["t_last"] >= since for fields in loaded.values())


def test_log_lines_are_objects_with_all_fields_and_the_log_file_has_the_same(
    killed: LoggedRun,
) -> None:
    keys = {"time", "level", "process", "logger", "event", "message", "fields"}
    assert {frozenset(line) for line in killed.lines} == {frozenset(keys)}
    assert {line["process"] for line in killed.lines} == {"run", "master", "node-0", "node-1"}
    assert not [line for line in killed.lines if "\x1e" in line["message"]]
    written = (killed.output.parent / "log").read_text().splitlines(True)
    assert sorted(written) == sorted(killed.raw_lines)
    printed = killed.events("print")
    assert {(line["message"], line["level"]) for line in printed} == {
        ("a word of the user", "warning"),
        ("said on stdout", "info"),
    }
    assert {line["process"] for line in printed} <= {"node-0", "node-1"}


def test_final_progress_matches_report_and_reference(killed: LoggedRun) -> None:
    figures = killed.events("progress")[-1]["fields"]
    report = json.loads((killed.output.parent / "report").read_text())
    lines = sum(len(file.read_text().splitlines()) for file in killed.output.glob("*.jsonl"))
    assert figures["records"] == report["records"] == 200
    assert figures["outputs"] == lines == 200, "one output for each record, as the flow defines"
    assert (figures["undelivered"], figures["lag_s"], figures["state"]) == (0, 0, "ended")
    size = (killed.output.parent / "in.jsonl").stat().st_size
    assert figures["inputs"] == [
        {"name": "in.jsonl", "records": 200, "position": size, "size": size, "percent": 100.0,
         "waiting": None, "lag_s": 0, "producers": None}
    ]  # fmt: skip
    over = killed.until("run-ended")["fields"]
    assert (over["records"], over["restarts"]) == (200, 1)


RECORDS = 150


def test_next_call_logs_its_resume_point(tmp_path: Path) -> None:
    arguments = tmp_path, "flow", RECORDS, "--log-level", "debug"
    with LoggedRun(*arguments) as run:
        assert not run.events("resumed")
        run.until("snapshot", time=50)
        run.process.kill()
        run.end()
    with LoggedRun(*arguments) as run:
        resumed = run.until("resumed")
        start = run.until("load")["fields"]
        assert resumed["fields"]["snapshot"] == start["snapshot"] > 0
        assert resumed["fields"]["ended"] == "interrupted"
        assert f"resumes from snapshot {start['snapshot']}" in resumed["message"]
        assert run.end() == 0
        figures = run.events("progress")[-1]["fields"]
        assert figures["records"] == RECORDS + 1 - start["time"]
        assert figures["outputs"] == run.events("run-ended")[-1]["fields"]["outputs"] < RECORDS


def test_process_log_lines_reach_the_logging_of_the_caller(tmp_path: Path) -> None:
    (tmp_path / "flows.py").write_text(FLOW)
    (tmp_path / "script.py").write_text(
        "import logging\n"
        "from driftline import run\n"
        "if __name__ == '__main__':\n"
        "    form = '%(processName)s|%(levelname)s|%(fields)s|%(message)s'\n"
        "    logging.basicConfig(level=logging.INFO, format=form)\n"
        "    run('flows.py:flow', [[{'id': 1}, {'id': 2}]], 'out')\n"
        "    assert not logging.getLogger('driftline').handlers\n"
    )
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "master|INFO|{'event': 'load', 'incarnation': 1, " in done.stderr


def test_logging_configuration_of_a_flow_does_not_hide_errors(tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("one\n")
    (tmp_path / "loud.py").write_text(
        "import logging.config\n"
        "logging.config.dictConfig({'version': 1})\n"
        "logging.disable(50)\n"
        "logging.getLogger().handlers.clear()\n"
        "from driftline import Flow\n"
        "flow = Flow('loud')\n"
        "flow.source('lines').map(lambda line: 1 / 0).sink('out')\n"
    )
    done = driftline("run", tmp_path / "loud.py", "--input", tmp_path / "in.txt", "--output",
                     tmp_path / "out", "--log-file", tmp_path / "log")  # fmt: skip
    assert done.returncode == 1
    assert "ZeroDivisionError" in done.stderr
    assert "ZeroDivisionError" in (tmp_path / "log").read_text()
