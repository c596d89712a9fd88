"""While no master lives, `driftline status` says what nodes and fronts do; nothing is mocked."""

from __future__ import annotations

from pathlib import Path

from driftline import Producer
from driftline.deploy.zookeeper.ensemble import Ensemble
from tests.deploy.cluster.machine import Machine

FLOW = """
from driftline import Flow
flow = Flow("twice")
flow.source("numbers").map(lambda n: 2 * n).sink("out")
"""


def test_the_status_of_a_flow_whose_master_is_gone(tmp_path: Path, zookeeper: Ensemble) -> None:
    (tmp_path / "flow.py").write_text(FLOW)
    with Machine(tmp_path, zookeeper) as machine:
        machine.command("submit", "flow.py", "--input", "tcp://127.0.0.1:0", "--nodes", 2,
                        "--output", machine.output)  # fmt: skip
        machine.until(lambda: machine.flow("twice")["state"] == "running", "it runs")
        with Producer(machine.listening()[0], "p", timeout_s=60) as producer:
            producer.send(1)
            producer.flush()
            machine.until(lambda: machine.values() == [2], "an output")
            machine.kill("master")
            machine.until(
                lambda: machine.flow("twice")["state"].startswith("no master answers; nodes go on"),
                "nodes go on",
            )
            before = machine.flow("twice")["frontier"]
            producer.send(2)
            producer.flush()
            machine.until(lambda: sorted(map(str, machine.values())) == ["2", "4"], "one more")
            machine.until(lambda: machine.flow("twice")["frontier"] > before, "it is seen")
            machine.until(lambda: machine.flow("twice")["lag_s"] == 0.0, "nothing waits")
        flow = machine.flow("twice")
        assert [node["state"] for node in flow["nodes"]] == ["running"] * 2
        assert [front["state"] for front in flow["inputs"]] != ["silent"]
        assert "there is no agent for masters" in flow["trouble"]
        machine.start("master")
        machine.until(lambda: machine.flow("twice")["state"] == "running", "another one leads")
