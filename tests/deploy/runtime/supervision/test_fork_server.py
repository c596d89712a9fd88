"""Processes are forked from one that has imported Driftline; each of them loads the flow itself."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import psutil

from tests.deploy.local.command import driftline
from tests.deploy.runtime.metrics.scraping import free_ports, scrape
from tests.deploy.runtime.test_silent_processes import ProducerRun

LOADED = """
import os, signal, sys
from driftline import Flow

sys.loaded_by = os.getpid()
signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # of no consequence
flow = Flow("loaded")
flow.source("in").map(lambda record: os.getpid() == sys.loaded_by).sink("out")
"""


def test_each_process_loads_the_flow(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text(20 * "{}\n")
    (tmp_path / "flow.py").write_text(LOADED)
    done = driftline(
        "run", tmp_path / "flow.py", "--input", tmp_path / "in.jsonl",
        "--output", tmp_path / "out", "--nodes", "2",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    files = (tmp_path / "out").glob("*.jsonl")
    lines = [line for file in files for line in file.read_text().splitlines()]
    assert [json.loads(line)["value"] for line in lines] == 20 * [True]


def test_killed_or_stopped_fork_server_is_replaced_and_the_run_recovers(
    tmp_path: Path,
) -> None:
    """Its processes die with it. The new master serves metrics at the same port as before."""
    port = free_ports(4)
    run = ProducerRun(tmp_path, "--metrics", f"127.0.0.1:{port}")
    master = f"http://127.0.0.1:{port + 1}"
    try:
        run.send()
        run.await_outputs()
        epoch = scrape(master)["driftline_master_epoch", "master"]
        for number in (1, 2):
            server = psutil.Process(run.pid("node-0")).parent()
            assert server is not None
            pids = {run.pid(name) for name in ("master", "node-0", "node-1")}
            assert {child.pid for child in server.children()} == pids
            if number == 1:
                server.kill()
            # the stopped server can neither report that the node has exited nor fork another one
            else:
                server.suspend()
                psutil.Process(run.pid("node-1")).kill()
            run.wait(
                lambda n=number: len(run.events("process-started")) >= 3 * n,  # type: ignore[misc]
                "three successors",
            )
            died = run.events("fork-server-died", pid=server.pid, status=-signal.SIGKILL)
            assert len(died) == 1
            assert ("did not answer" in str(died[0]["said"])) == (number == 2)
            run.send()
            run.await_outputs()
        assert scrape(master)["driftline_master_epoch", "master"] == epoch + 2
        run.process.send_signal(signal.SIGTERM)
        run.check_clean_end()
    finally:
        run.producer.close()
        run.process.kill()
        run.process.wait()
