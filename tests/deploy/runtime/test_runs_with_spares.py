"""A run with a spare: who dies is replaced by it, and everything else is as without one."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.deploy.runtime.metrics.scraping import free_ports, scrape
from tests.deploy.runtime.test_silent_processes import FLOW, Served

Start = Callable[..., Served]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start a run, and wait until it has a spare."""
    with ExitStack() as stack:

        def start(*options: str, flow: str = FLOW) -> Served:
            run = Served(tmp_path, "--log-level", "debug", *options, flow=flow)
            stack.callback(run.producer.close)
            stack.callback(run.process.wait)
            stack.callback(run.process.kill)
            run.send()
            run.await_outputs()
            run.wait(lambda: run.told("spare-ready"), "a spare")
            return run

        yield start


def kill(run: Served, name: str) -> None:
    """Kill -9, and wait until the run goes on."""
    before = len(run.told("process-started", name=name))
    os.kill(run.pid(name), signal.SIGKILL)
    run.wait(lambda: len(run.told("process-started", name=name)) > before, "its successor")
    run.send()
    run.await_outputs()


def test_spares_take_the_places_of_others_or_are_replaced(start: Start, tmp_path: Path) -> None:
    """A spare that dies, or that finds a changed file and refuses it, does not disturb the run. The
    spare that becomes the master serves metrics at the master's port."""
    port = free_ports(4)
    run = start("--metrics", f"127.0.0.1:{port}")
    master = f"http://127.0.0.1:{port + 1}"
    epoch = scrape(master)["driftline_master_epoch", "master"]
    first = run.told("spare-ready")[0]["pid"]
    assert isinstance(first, int)
    os.kill(first, signal.SIGKILL)
    run.wait(lambda: len(run.told("spare-ready")) == 2, "another spare")
    assert len(run.told("spare-died", pid=first, status=-signal.SIGKILL)) == 1
    assert not run.told("recovery")
    for number, name in enumerate(("node-1", "master"), 2):
        run.wait(lambda n=number: len(run.told("spare-ready")) == n, "a spare")  # type: ignore[misc]
        spare = run.told("spare-ready")[-1]["pid"]
        kill(run, name)
        assert run.told("process-started", name=name, spare=True)[-1]["pid"] == spare
    run.wait(lambda: run.told("taken-over"), "a new master")
    assert scrape(master)["driftline_master_epoch", "master"] == epoch + 1
    run.wait(lambda: len(run.told("spare-ready")) == 4, "a spare")
    assert {line["process"] for line in run.lines} == {"run", "master", "node-0", "node-1"}
    (tmp_path / "counts.py").write_text(FLOW.replace("total.get()]", "-total.get()]"))
    kill(run, "node-0")
    run.wait(lambda: run.told("spare-died", status=2), "a spare that refuses the new file")
    run.process.send_signal(signal.SIGTERM)
    run.ends_in_good_order()
