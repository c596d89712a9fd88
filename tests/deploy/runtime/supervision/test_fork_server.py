"""Processes are forked from one that has loaded the flow, unless it holds files or threads."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import psutil

from tests.deploy.local.command import driftline
from tests.deploy.runtime.metrics.scraping import free_ports, scrape
from tests.deploy.runtime.test_silent_processes import FLOW, Served

HOLDS = """
import os, sys, threading
from driftline import Flow

sys.loaded_by = os.getpid()
{more}
flow = Flow("holds")
flow.source("in").map(lambda record: os.getpid() == sys.loaded_by).sink("out")
"""


def test_flow_that_holds_files_or_threads_is_loaded_by_each_process(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text(20 * "{}\n")
    for number, (more, is_own) in enumerate(
        {
            "": False,
            "import signal; signal.signal(signal.SIGCHLD, signal.SIG_IGN)": False,
            "file = open(__file__)": True,
            "threading.Thread(target=threading.Event().wait, daemon=True).start()": True,
        }.items()
    ):
        (tmp_path / "flow.py").write_text(HOLDS.format(more=more))
        output = tmp_path / f"out-{number}"
        done = driftline(
            "run", tmp_path / "flow.py", "--input", tmp_path / "in.jsonl",
            "--output", output, "--nodes", "2",
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        lines = [line for file in output.glob("*.jsonl") for line in file.read_text().splitlines()]
        assert [json.loads(line)["value"] for line in lines] == 20 * [is_own], more


def test_killed_fork_server_takes_its_processes_along_and_the_run_recovers(tmp_path: Path) -> None:
    """A file that changes during the run is not loaded before a fork server starts. The new master
    serves metrics at the master's port."""
    port = free_ports(4)
    run = Served(tmp_path, "--metrics", f"127.0.0.1:{port}")
    master = f"http://127.0.0.1:{port + 1}"
    try:
        run.send()
        run.await_outputs()
        epoch = scrape(master)["driftline_master_epoch", "master"]
        fork_server = psutil.Process(run.pid("node-0")).parent()
        assert fork_server is not None
        assert {child.pid for child in fork_server.children()} == {
            run.pid(name) for name in ("master", "node-0", "node-1")
        }
        fork_server.kill()
        run.wait(lambda: len(run.told("process-started")) == 3, "three successors")
        assert len(run.told("fork-server-died", pid=fork_server.pid, status=-signal.SIGKILL)) == 1
        run.send()
        run.await_outputs()
        assert scrape(master)["driftline_master_epoch", "master"] == epoch + 1
        (tmp_path / "counts.py").write_text(FLOW.replace("total.get()]", "-total.get()]"))
        os.kill(run.pid("node-1"), signal.SIGKILL)
        run.wait(lambda: len(run.told("process-started")) == 4, "a successor")
        run.send()
        run.await_outputs()
        run.process.send_signal(signal.SIGTERM)
        run.ends_in_good_order()
    finally:
        run.producer.close()
        run.process.kill()
        run.process.wait()
