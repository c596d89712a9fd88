"""The Nexmark queries give the rows of SQL: in the reference, and in processes that are killed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from driftline import Flow, run_reference
from tests.deploy.local.command import ROOT
from tests.deploy.local.run_copies import kill, wait_until
from tests.nexmark.generator import Event, generate
from tests.nexmark.oracle import Row, occurrences_in, results_of, windows_of
from tests.nexmark.queries import QUERIES, flow_of, q12

EVENTS = list(generate(2000, seed=10))
BIDS = [event for event in EVENTS if event["kind"] == "bid"]

SLOWLY = "--nodes", "2", "--max-in-flight", "32", "--snapshot-interval-ms", "200"
"""Options of a run that takes long enough to be disturbed."""

RUN_MAX_S = 300


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("nexmark") / "events.jsonl", EVENTS)


@pytest.fixture(scope="module")
def expected(events: Path) -> dict[str, list[Row]]:
    return results_of(events)


def write(path: Path, records: Iterable[object]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def bag(rows: Iterable[object]) -> Counter[str]:
    """Return rows as text, and how often each occurs."""
    return Counter(json.dumps(row, sort_keys=True) for row in rows)


def values(output: Path, sink: str) -> list[Row]:
    """Return the outputs of a sink on all nodes."""
    return [json.loads(line)["value"] for line in lines(output, sink)]


def lines(output: Path, sink: str) -> list[str]:
    files = output.glob(f"{sink}-*.jsonl")
    return [line for file in files for line in file.read_text().splitlines()]


def reference(flow: Flow, records: Sequence[Event]) -> dict[str, list[Any]]:
    """Return the outputs of each sink."""
    items = list(run_reference(flow, [records]))
    sinks = enumerate(flow.sinks)
    return {sink.name: [item.value for item in items if item.sink == i] for i, sink in sinks}


@contextmanager
def running(
    flow: str, output: Path, *options: str | Path, stdin: int = subprocess.DEVNULL
) -> Iterator[subprocess.Popen[str]]:
    """Run a flow of `queries.py` in processes, which are killed at the end of the block."""
    run = "run", f"tests.nexmark.queries:{flow}", "--output", output, *options
    process = subprocess.Popen(
        [sys.executable, "-m", "driftline", *map(str, run)],
        cwd=ROOT, stdin=stdin, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    try:
        yield process
    finally:
        if process.poll() is None:
            kill(process)


def finish(process: subprocess.Popen[str], status: int = 0) -> None:
    """Wait for the end of a run."""
    _, errors = process.communicate(timeout=RUN_MAX_S)
    assert process.returncode == status, errors


# The queries in SQL -----------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", QUERIES)
def test_reference_gives_the_rows_of_sql(name: str, expected: dict[str, list[Row]]) -> None:
    assert len(expected[name]) > 10
    assert bag(reference(flow_of(name), EVENTS)[name]) == bag(expected[name])


def test_events_contain_all_cases_that_the_queries_distinguish(events: Path) -> None:
    found = occurrences_in(events)
    assert min(found.values()) > 0, found


def test_reference_counts_bids_in_windows_of_their_arrival(tmp_path: Path) -> None:
    size = timedelta(microseconds=300)  # in the reference the n-th record arrives at microsecond n
    found = reference(q12(size), BIDS)
    assert [bid["time"] for bid in found["arrivals"]] == [*range(1, len(BIDS) + 1)]
    check_windows(found["q12"], found["arrivals"], 300, tmp_path)


def check_windows(rows: Sequence[Row], arrivals: Sequence[Row], size_us: int, folder: Path) -> None:
    """Assert that each bid has arrived once, and counts in the window of its arrival."""
    assert bag(bid["id"] for bid in arrivals) == bag(bid["id"] for bid in BIDS)
    expected = windows_of(write(folder / "arrivals.jsonl", arrivals), size_us)
    assert len({row["start"] for row in expected}) > 2
    assert bag(rows) == bag(expected)


# In processes -----------------------------------------------------------------------------------


def check(output: Path, expected: dict[str, list[Row]]) -> None:
    found = {name: bag(values(output, name)) for name in QUERIES}
    assert found == {name: bag(rows) for name, rows in expected.items()}


@pytest.mark.soak
def test_killed_processes_deliver_the_rows_of_sql(
    events: Path, expected: dict[str, list[Row]], tmp_path: Path
) -> None:
    output, report = tmp_path / "out", tmp_path / "report.json"
    options = "--input", events, *SLOWLY, "--kill-every", "0.2", "--json", report
    with running("everything", output, *options) as process:
        finish(process)
    assert json.loads(report.read_text())["kills"] >= 2
    check(output, expected)


@pytest.mark.soak
def test_stopped_run_continues_on_more_nodes(
    events: Path, expected: dict[str, list[Row]], tmp_path: Path
) -> None:
    with running("everything", tmp_path, "--input", events, *SLOWLY) as process:
        wait_until(lambda: len(lines(tmp_path, "q0")) > len(BIDS) / 3, "a third of the bids")
        process.send_signal(signal.SIGTERM)
        finish(process, 128 + signal.SIGTERM)
    assert len(lines(tmp_path, "q0")) < len(BIDS) * 2 / 3
    with running("everything", tmp_path, "--input", events, "--nodes", "3") as process:
        finish(process)
    assert len([*tmp_path.glob("q11-*.jsonl")]) == 2 + 3, "the files of the nodes of both runs"
    check(tmp_path, expected)


@pytest.mark.slow
def test_killed_processes_count_bids_in_windows_of_their_arrival(tmp_path: Path) -> None:
    output, report = tmp_path / "out", tmp_path / "report.json"
    options = "--input", "-", *SLOWLY, "--kill-every", "0.2", "--json", report
    with (
        write(tmp_path / "bids.jsonl", BIDS).open() as bids,
        running("arrivals", output, *options, stdin=bids.fileno()) as process,
    ):
        finish(process)
    assert json.loads(report.read_text())["kills"] >= 1
    check_windows(values(output, "q12"), values(output, "arrivals"), 2_000, tmp_path)
