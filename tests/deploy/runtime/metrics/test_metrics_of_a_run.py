"""Metrics of a run: real processes, real scrapes, kill -9."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from driftline.deploy.runtime.metrics.catalogue import CATALOGUE
from tests.deploy.runtime.metrics.scraping import ask, scrape
from tests.deploy.runtime.test_silent_processes import FLOW, ProducerRun

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

Start = Callable[..., ProducerRun]


def total(samples: Mapping[tuple[str, ...], float], name: str) -> float:
    """Return the sum of the samples of one name."""
    return sum(value for key, value in samples.items() if key[0] == name)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start a run that serves metrics, and wait until its first records are delivered."""
    with ExitStack() as stack:

        def start(*options: str, flow: str = FLOW, metrics: str = "127.0.0.1:0") -> ProducerRun:
            run = ProducerRun(tmp_path, "--metrics", metrics, *options, flow=flow)
            stack.callback(run.producer.close)
            stack.callback(run.process.wait)
            stack.callback(run.process.kill)
            run.send()
            return run

        yield start


def url(run: ProducerRun, name: str) -> str:
    """Wait until a process has logged its current address, and return it."""
    run.wait(lambda: run.events("listening", name=name), f"metrics of {name}")
    return str(run.events("listening", name=name)[-1]["address"]).removesuffix("/metrics")


def test_metrics_answer_during_a_long_function_and_match_the_report(
    start: Start, tmp_path: Path
) -> None:
    report, held = tmp_path / "report.json", tmp_path / "held"
    held.touch()
    options = "--on-error", "dead-letter", "--json", str(report)
    run = start(*options, flow=SLOW.replace("HELD", repr(str(held))))
    urls = {name: url(run, name) for name in PROCESSES}
    run.wait(lambda: run.events("print", said="it takes long"), "a function takes long")
    node = str(run.events("print", said="it takes long")[0]["process"])
    slow = urls[node]
    assert ask(f"{slow}/healthz").status == ask(f"{slow}/readyz").status == 200
    assert scrape(slow)["driftline_node_running", node] == 1
    lag = ("driftline_frontier_lag_seconds", "records")
    run.wait(lambda: scrape(urls["run"]).get(lag, 0.0) > 0.5, "the lag grows")
    held.unlink()
    for _ in range(5):
        run.send()
        assert all(scrape(at) for at in urls.values()), "metrics answer while nodes are busy"
    run.wait(lambda: len(run.values()) == run.sent - 1, "all outputs but one")
    undelivered = "driftline_undelivered_records"
    run.wait(lambda: total(scrape(urls["run"]), undelivered) == 0, "the front to know of them")
    found = {name: scrape(at) for name, at in urls.items()}
    metric_names = {name for each in found.values() for name, *_ in each}
    other = re.compile(
        "_agent_|_watermark_|_windows|_timers|_late_"
    )  # this flow has no event times
    for family in (each for each in CATALOGUE.values() if not other.search(each.name)):
        assert family.name in metric_names or f"{family.name}_bucket" in metric_names, family.name
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
