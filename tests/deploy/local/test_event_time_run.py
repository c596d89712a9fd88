"""Windows in real processes: the rows survive a kill -9, and a savepoint on more nodes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

import pytest

from driftline import run_reference
from tests.deploy.local.command import ROOT, call, count_lines, lines
from tests.deploy.local.run_copies import LIMIT_S, kill, wait_until

FLOW = """
from driftline import Count, Flow, Last, Session, Sum, Tumbling

flow = Flow("views")
views = flow.source("views", event_time="at", max_delay="5s")
windows = views.key_by("user").window(Tumbling("1m"))
windows.aggregate(views=Count(), spent=Sum("price"), last=Last("page")).sink("per minute")
windows.late.sink("too late")
visits = views.key_by("page").window(Session("20s"))
visits.aggregate(views=Count(), spent=Sum("price")).sink("visits")
"""

RECORDS = 800


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a flow and an input of 50 minutes; some records are late."""
    folder = tmp_path_factory.mktemp("views")
    (folder / "views.py").write_text(FLOW)
    chance = Random(7)
    records = (
        {
            "user": f"u{chance.randrange(50)}",
            "at": 1_700_000_000 + number + chance.choice((0, 0.25, -4.75, -4.75, -30)),
            "price": chance.randrange(1000) / 10,
            "page": f"p{chance.randrange(40)}",
        }
        for number in range(RECORDS)
    )
    text = "".join(json.dumps(record) + "\n" for record in records)
    (folder / "views.jsonl").write_text(text)
    return folder


@pytest.fixture(scope="module")
def reference(folder: Path) -> list[str]:
    done = call(*command(folder, folder / "reference"), "--reference")
    assert done.returncode == 0, done.stderr
    found = lines(folder / "reference")
    values = [json.loads(line)["value"] for line in found]
    assert sum("watermark" in value for value in values) > RECORDS / 20, "late elements"
    assert sum("views" in value for value in values) > RECORDS / 2, "rows"
    return found


def command(
    folder: Path, output: Path, *more: str | Path, is_piped: bool = False
) -> list[str | Path]:
    given = "-" if is_piped else folder / "views.jsonl"
    return ["run", folder / "views.py", "--input", given, "--output", output, *more]


def started(
    folder: Path, output: Path, *more: str, piped: int | None = None
) -> subprocess.Popen[str]:
    """Start a run that is slow enough to be disturbed. `piped`: its standard input."""
    slow = "--nodes", "2", "--window", "4", "--checkpoint-ms", "100"
    arguments = command(folder, output, *slow, *more, is_piped=piped is not None)
    return subprocess.Popen(
        [sys.executable, "-m", "driftline", *map(str, arguments)],
        cwd=ROOT, stdin=piped, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip


def late_visits(folder: Path) -> int:
    """Return the number of elements that are late for `visits`, which has no sink for them."""
    names: dict[str, Any] = {}
    exec(FLOW + 'visits.late.sink("late visits")', names)
    records = map(json.loads, (folder / "views.jsonl").read_text().splitlines())
    late = len(names["flow"].sinks) - 1
    return sum(item.sink == late for item in run_reference(names["flow"], [list(records)]))


def test_killed_node_leaves_the_rows_of_the_reference(
    folder: Path, reference: list[str], tmp_path: Path
) -> None:
    """On standard input, whose log has the mark that ends the last windows."""
    log = tmp_path / "log"
    with (folder / "views.jsonl").open() as views:
        process = started(
            folder, tmp_path, "--log-json", "--log-file", str(log), piped=views.fileno()
        )

    def logged(event: str) -> list[dict[str, object]]:
        found = map(json.loads, log.read_text().splitlines())
        return [each["fields"] for each in found if each["event"] == event]

    try:
        wait_until(lambda: count_lines(tmp_path) > len(reference) / 3, "a third of the rows")
        [pids] = logged("processes-started")
        assert isinstance(pids["node-1"], int)
        os.kill(pids["node-1"], signal.SIGKILL)
        _, errors = process.communicate(timeout=LIMIT_S)
    finally:
        if process.poll() is None:
            kill(process)
    assert process.returncode == 0, errors
    assert [each["name"] for each in logged("process-died")] == ["node-1"]
    assert lines(tmp_path) == reference
    assert [each["late_elements"] for each in logged("run-ended")] == [late_visits(folder)]


def test_savepoint_of_a_stopped_run_continues_on_more_nodes(
    folder: Path, reference: list[str], tmp_path: Path
) -> None:
    first, savepoint, second = tmp_path / "first", tmp_path / "savepoint", tmp_path / "second"
    process = started(folder, first)
    try:
        wait_until(lambda: count_lines(first) > len(reference) / 3, "a third of the rows")
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=LIMIT_S)
    finally:
        if process.poll() is None:
            kill(process)
    assert process.returncode == 128 + signal.SIGTERM, errors
    state = first / ".driftline" / "state"
    done = call("savepoint", folder / "views.py", "--state", state, "--output", savepoint)
    assert done.returncode == 0, done.stderr
    done = call(*command(folder, second, "--nodes", "3", "--from-snapshot", savepoint))
    assert done.returncode == 0, done.stderr
    before, after = lines(first), lines(second)
    assert len(before) > len(reference) / 3
    assert len(after) > len(reference) / 9
    assert before + after == reference, "the state is that after the last row"
