"""Metrics of a cluster: agents list all processes, and each process reports its health."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from driftline import Producer
from driftline.deploy.cluster.metrics import HANGS_AFTER_S, AgentStatus
from driftline.deploy.cluster.records import AgentRole
from driftline.deploy.runtime.metrics.catalogue import CATALOGUE
from tests.deploy.cluster.machine import KINDS, Machine
from tests.deploy.runtime.metrics.scraping import Answer, ask, scrape
from tests.zookeepers import Ensemble

FLOW = """
from driftline import Flow, ReducingState

def add(total, n):
    return total + n

flow = Flow("added")
counted = flow.source("numbers").key_by(lambda record: record["n"] % 8)
counted.scan(lambda record, total: total.add(record["n"]), ReducingState("total", add)).sink("sums")
"""

RECORDS = 200


@pytest.fixture
def machine(tmp_path: Path, zookeeper: Ensemble) -> Iterator[Machine]:
    (tmp_path / "flow.py").write_text(FLOW)
    with Machine(tmp_path, zookeeper, options=("--metrics", "127.0.0.1:0")) as machine:
        yield machine


def agent_metrics_url(machine: Machine, name: str) -> str:
    """Return the address of the metrics of an agent's latest start."""
    log = machine.folder / f"{name}.log"
    machine.until(lambda: "metrics of agent at" in log.read_text(), f"metrics of {name}")
    return str(re.findall(r"metrics of agent at (http://\S+)/metrics", log.read_text())[-1])


def discovered_targets(machine: Machine, *names: str) -> dict[str, str]:
    """Return the address of each process, as Prometheus discovers it at these agents."""
    found = {}
    for name in names:
        with urllib.request.urlopen(
            f"{agent_metrics_url(machine, name)}/targets", timeout=20
        ) as answer:
            assert answer.headers["Content-Type"].startswith("application/json")
            groups = json.load(answer)
        for group in groups:
            [at], labels = group["targets"], group["labels"]
            own = labels["process"] == "agent"
            assert (labels["agent"], labels["flow"]) == (name, "" if own else "other")
            found[f"agent {name}" if own else labels["process"]] = f"http://{at}"
    return found


def test_agents_list_every_process_as_scrape_target(machine: Machine) -> None:
    """After kill -9 a node serves at the same port. A flow reports what it waits for."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    options = "--input", address, "--output", machine.output, "--name", "other", "--nodes", "2"
    machine.command("submit", "flow.py", *options)
    with Producer(address, "p", timeout_s=60) as producer:
        for n in range(RECORDS):
            producer.send({"n": n})
        producer.flush()
        machine.until(lambda: len(machine.values()) == RECORDS, "all outputs")
        machine.until(lambda: len(discovered_targets(machine, *KINDS)) == 7, "all processes")
        urls = discovered_targets(machine, *KINDS)
        agents = {f"agent {kind}" for kind in KINDS}
        assert urls.keys() == {"master", "node-0", "node-1", "front-0", *agents}
        for name, url in urls.items():
            assert (ask(f"{url}/readyz"), ask(f"{url}/healthz")) == (
                Answer(200, "ready\n"),
                Answer(200, "ok\n"),
            ), name
        samples = {name: scrape(url) for name, url in urls.items()}
        metric_names = {key[0] for each in samples.values() for key in each}
        event_time = ("node", "source"), ("node", "operator")  # the flow has no event times
        expected = [f for f in CATALOGUE.values() if f.labels not in event_time]
        lacking = {f.name for f in expected if f.kind != "histogram"} - metric_names
        assert not lacking, "no process exports this metric"
        assert samples["front-0"]["driftline_records_total", "numbers"] == RECORDS
        assert samples["master"]["driftline_phase", "running"] == 1
        assert samples["master"]["driftline_master_leads", "master"] == 1
        outputs = [samples[n]["driftline_outputs_total", n] for n in ("node-0", "node-1")]
        assert sum(outputs) == RECORDS
        assert samples["agent node"]["driftline_agent_processes",] == 2
        assert samples["agent node"]["driftline_agent_info", "node", "node"] == 1
        assert samples["agent node"]["driftline_process_restarts_total", "node-1"] == 0
        producers = "driftline_producers", "numbers"
        machine.until(lambda: scrape(urls["front-0"])[producers] == 1, "a look at the producers")
        shown = machine.flow("other")
        assert [each["figures"]["records"] for each in shown["inputs"]] == [RECORDS]
        assert shown["inputs"][0]["state"] == "reading"
        age = "snapshot_age_s"  # a master exports it once it has committed a snapshot
        machine.until(lambda: machine.flow("other")[age] is not None, "the age of a snapshot")
        assert shown["held_back"] == shown["obstacles"] == []
        page = ask(f"{urls['node-0']}/metrics").text
        assert 'driftline_node_running{flow="other",node="node-0"} 1.0' in page
        log = (machine.folder / "node.log").read_text()
        os.kill(int(re.findall(r"node-1 \(pid (\d+)", log)[-1]), signal.SIGKILL)

        def is_restarted() -> bool:
            agent = scrape(urls["agent node"])
            restarted = agent["driftline_process_restarts_total", "node-1"] == 1
            return restarted and all(ask(f"{at}/readyz").status == 200 for at in urls.values())

        machine.until(is_restarted, "node-1 at the same port")
        assert discovered_targets(machine, *KINDS) == urls
        machine.kill("node")
        master = urls["master"]
        machine.until(lambda: ask(f"{master}/readyz").status == 503, "the master misses the nodes")
        assert "waiting for nodes and fronts" in ask(f"{master}/readyz").text
        assert ask(f"{urls['agent node']}/healthz").status == 0
        assert ask(f"{urls['front-0']}/healthz").status == 200
        machine.start("node")
        machine.until(lambda: ask(f"{master}/readyz").status == 200, "the nodes")
    machine.command("stop", "other")
    machine.until(lambda: len(discovered_targets(machine, *KINDS)) == 3, "the agents alone")


def test_disconnected_agent_is_not_ready_and_hung_agent_is_unhealthy() -> None:
    standing = AgentStatus("a", (AgentRole.NODE,), 4)
    assert standing.why_not_ready() == "it has not seen the cluster yet"
    standing = replace(standing, unreachable_reason="")
    standing.problems["flow"] = "no module"
    samples = {(flow, name): value for flow, (name, _, value) in standing.samples()}
    assert samples["", "driftline_agent_slots"] == 4
    assert samples["", "driftline_agent_reaches_cluster"] == 1
    assert samples["flow", "driftline_agent_problem"] == 1
    assert standing.why_not_ready() == ""
    assert standing.why_not_healthy(standing.turned_at + HANGS_AFTER_S - 1) == ""
    later = standing.turned_at + HANGS_AFTER_S + 1
    assert standing.why_not_healthy(later) == "the agent's loop has not turned for 61 s"
    assert standing.targets("::1", 9100) == [
        {"targets": ["[::1]:9100"], "labels": {"flow": "", "process": "agent", "agent": "a"}}
    ]
