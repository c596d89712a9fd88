"""The metrics of a run: real processes, real scrapes, kill -9."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from driftline.deploy.runtime.metrics.catalogue import CATALOGUE
from tests.deploy.local.command import driftline
from tests.deploy.runtime.metrics.scraping import ask, free_ports, scrape
from tests.deploy.runtime.test_silent_processes import FLOW, Served

PROCESSES = ("run", "master", "node-0", "node-1")

SLOW = f"""
import os, time
{
    FLOW.replace(
        "def count(record, total):",
        '''def count(record, total):
    if record["id"] == 100:
        print("it takes long")
    while record["id"] == 100 and os.path.exists(HELD):
        time.sleep(0.01)
    1 // (record["id"] - 5)''',
    )
}
"""

Start = Callable[..., Served]


def total(samples: Mapping[tuple[str, ...], float], name: str) -> float:
    """The sum of the samples of one name."""
    return sum(value for key, value in samples.items() if key[0] == name)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start a run that serves metrics, and wait until its first records are delivered."""
    with ExitStack() as stack:

        def start(*options: str, flow: str = FLOW, metrics: str = "127.0.0.1:0") -> Served:
            run = Served(tmp_path, "--metrics", metrics, *options, flow=flow)
            stack.callback(run.producer.close)
            stack.callback(run.process.wait)
            stack.callback(run.process.kill)
            run.send()
            return run

        yield start


def url(run: Served, name: str) -> str:
    """Where a process serves now; waits until it has said so."""
    run.wait(lambda: run.told("listening", name=name), f"metrics of {name}")
    return str(run.told("listening", name=name)[-1]["address"]).removesuffix("/metrics")


def taken(by: socket.socket, port: int) -> bool:
    """Whether a socket listens at a port of a process that was killed."""
    try:
        by.bind(("127.0.0.1", port))
    except OSError:  # the kernel has not ended it yet
        return False
    by.listen()
    return True


def test_metrics_answer_during_a_long_function_and_match_the_report(
    start: Start, tmp_path: Path
) -> None:
    report, held = tmp_path / "report.json", tmp_path / "held"
    held.touch()
    options = "--on-error", "dead-letter", "--json", str(report)
    run = start(*options, flow=SLOW.replace("HELD", repr(str(held))))
    urls = {name: url(run, name) for name in PROCESSES}
    run.wait(lambda: run.told("print", said="it takes long"), "a function takes long")
    node = str(run.told("print", said="it takes long")[0]["process"])
    slow = urls[node]
    assert ask(f"{slow}/healthz").status == ask(f"{slow}/readyz").status == 200
    assert scrape(slow)["driftline_node_running", node] == 1
    lag = ("driftline_frontier_lag_seconds", "records")
    run.wait(lambda: scrape(urls["run"]).get(lag, 0.0) > 0.5, "the lag grows")
    held.unlink()
    for _ in range(5):
        run.send()
        assert all(scrape(at) for at in urls.values()), "while they are busy"
    run.wait(lambda: len(run.values()) == run.sent - 1, "all outputs but one")
    undelivered = "driftline_undelivered_records"
    run.wait(lambda: total(scrape(urls["run"]), undelivered) == 0, "the front to know of them")
    found = {name: scrape(at) for name, at in urls.items()}
    given = {name for each in found.values() for name, *_ in each}
    other = re.compile("_agent_|_watermark_|_windows|_timers")  # this flow has no event times
    for family in (each for each in CATALOGUE.values() if not other.search(each.name)):
        assert family.name in given or f"{family.name}_bucket" in given, family.name
    snapshots = found["master"]["driftline_snapshots_total",]
    run.process.send_signal(signal.SIGTERM)
    run.wait(lambda: run.process.poll() is not None, "the end")
    over = json.loads(report.read_text())

    def of_all(name: str) -> float:
        return sum(total(each, name) for each in found.values())

    assert of_all("driftline_records_total") == over["records"] == run.sent
    assert of_all("driftline_outputs_total") == over["outputs"] == run.sent - 1
    assert of_all("driftline_dead_letters_total") == over["dead_letters"] == 1
    assert of_all("driftline_bad_records_total") == over["bad_records"] == 0
    assert of_all("driftline_process_restarts_total") == over["restarts"] == 0
    assert of_all("driftline_delivery_latency_seconds_count") == over["records"]
    assert of_all("driftline_elements_total") == over["records"]
    assert of_all("driftline_undelivered_records") == of_all("driftline_in_flight_bytes") == 0
    assert of_all("driftline_recoveries_total") == 0
    assert of_all("driftline_snapshot_duration_seconds_count") == snapshots


def test_a_run_is_not_ready_while_it_recovers_and_then_again(start: Start) -> None:
    """The port of a role stays the same, though another process has it for a while; what a stopped
    node holds up, the master says."""
    first = free_ports(4)
    run = start("--spares", "0", metrics=f"127.0.0.1:{first}")
    urls = dict(zip(PROCESSES, (f"http://127.0.0.1:{first + i}" for i in range(4)), strict=True))

    def ready(name: str, *statuses: int) -> Callable[[], bool]:
        return lambda: ask(f"{urls[name]}/readyz").status in statuses

    for name in PROCESSES:
        run.wait(ready(name, 200), f"{name} is ready")
    run.await_outputs()
    pid = run.stop("node-1")
    run.wait(ready("master", 503), "the master misses node-1")
    assert "waiting for nodes and fronts" in ask(f"{urls['master']}/readyz").text
    phases = {k[1]: v for k, v in scrape(urls["master"]).items() if k[0] == "driftline_phase"}
    assert [phase for phase, value in phases.items() if value] == ["gathering"]
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        os.kill(pid, signal.SIGKILL)
        run.wait(lambda: taken(other, first + 3), "the port of node-1")
        run.wait(lambda: run.told("metrics-unavailable", name="node-1"), "the warning")
        run.send()
        run.await_outputs()
    os.kill(run.pid("node-1"), signal.SIGKILL)
    for name in PROCESSES:
        run.wait(ready(name, 200), f"{name} is ready again")
    run.send()
    run.await_outputs()
    master, command = scrape(urls["master"]), scrape(urls["run"])
    assert master["driftline_recoveries_total",] >= 2
    assert master["driftline_recovery_duration_seconds_count",] == 2
    assert command["driftline_process_restarts_total", "node-1"] == 2
    for name in PROCESSES:
        assert scrape(urls[name])["driftline_incarnation", name] == 3
    run.process.send_signal(signal.SIGTERM)
    run.ends_in_good_order()


def test_a_port_that_is_taken_at_the_start_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text('{"id": 1}\n')
    (tmp_path / "counts.py").write_text(FLOW)
    first = free_ports(4)
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", first + 3))
        other.listen()
        done = driftline(
            "run", tmp_path / "counts.py", "--input", tmp_path / "in.jsonl", "--nodes", "2",
            "--output", tmp_path / "out", "--metrics", f"127.0.0.1:{first}",
        )  # fmt: skip
    assert done.returncode == 1
    assert f"127.0.0.1:{first + 3}: Address already in use" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out").exists()
