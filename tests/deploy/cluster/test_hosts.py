"""A flow on hosts whose links fail, that stand still, and die: the outputs are the same."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from unittest.mock import patch

import pytest

from driftline import run_reference
from driftline.engine.flow.loading import load_flow
from tests.deploy.cluster.lab import Lab, with_pid
from tests.zookeepers import needs_zookeeper

FLOW = """
import os, time
from driftline import Flow, ValueState

def joined(record, text):
    if os.path.exists(PACED):
        time.sleep(0.002)  # so that a run takes a while
    text.set((text.get() or "")[-20:] + record["text"])
    return {"key": record["key"], "text": text.get()}

flow = Flow("joined")
both = flow.source("one").union(flow.source("two"))
both.key_by("key").scan(joined, ValueState("text")).sink("texts")
"""

RECORDS = 6000


class Joined:
    """The flow in a lab, submitted with all its agents."""

    def __init__(
        self, lab: Lab, places: Sequence[tuple[str, str]], nodes: int, records: int = RECORDS
    ) -> None:
        """`places`: (kind of agents, the hosts that they are on); `records`: of each source."""
        self.lab, self.output = lab, lab.folder / "out"
        self.flow, inputs = lab.folder / "flow.py", []
        self._records: list[list[dict[str, object]]] = []
        self._outputs = 2 * records
        self._paced = lab.folder / "paced"
        self._paced.touch()
        self.flow.write_text(FLOW.replace("PACED", repr(str(self._paced))))
        for source in ("one", "two"):
            file = lab.folder / f"{source}.jsonl"
            given = [{"key": n % 31, "text": f"{source}{n} "} for n in range(records)]
            file.write_text("".join(json.dumps(record) + "\n" for record in given))
            inputs += ["--input", f"{source}={file}"]
            self._records.append([*given])
        started = [(kind, name) for kind, names in places for name in names]
        for kind, name in started:
            lab.hosts[name].start(kind)
        lab.until(lambda: len(lab.status()["agents"]) == len(started), "all agents")
        lab.command("submit", self.flow, *inputs, "--output", self.output, "--nodes", nodes,
                    "--window", "100", "--checkpoint-ms", "300")  # fmt: skip

    def _count(self) -> int:
        return sum(file.read_bytes().count(b"\n") for file in self.output.glob("*.jsonl"))

    def more(self, what: str, outputs: int = 400) -> None:
        """Wait for more outputs."""
        until = min(self._count() + outputs, self._outputs)
        self.lab.until(lambda: self._count() >= until, f"outputs {what}")

    def ends(self) -> None:
        """Let it hurry, wait for the end, and compare the outputs."""
        self._paced.unlink()
        lab = self.lab
        lab.until(lambda: bool(lab.status()["flows"][0]["over"]), "the end")
        assert lab.status()["flows"][0]["state"] == "complete"
        expected: dict[object, list[object]] = {}
        with patch("time.sleep"):
            for item in run_reference(load_flow(str(self.flow)), self._records):
                assert isinstance(item.value, dict)
                expected.setdefault(item.value["key"], []).append(item.value["text"])
        found: dict[object, list[object]] = {}
        for file in self.output.glob("*.jsonl"):
            for line in file.read_text().splitlines():
                value = json.loads(line)["value"]
                found.setdefault(value["key"], []).append(value["text"])
        assert found == expected


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    needs_zookeeper()
    with Lab(tmp_path, ["a", "b", "c", "d"]).built() as lab:
        yield lab


def test_links_that_fail_and_hosts_that_die(lab: Lab) -> None:
    hosts = lab.hosts
    run = Joined(lab, (("master", "ab"), ("node", "abc"), ("front", "ac")), nodes=3)
    more = run.more
    more("at all")
    with hosts["c"].cut_off():
        lab.until(lambda: lab.status()["flows"][0]["state"] != "running", "c is missed")
    more("after c was cut off")
    before = lab.status()["flows"][0]["incarnation"]

    def noticed() -> bool:
        flow = lab.status()["flows"][0]
        return bool(flow["incarnation"] > before or flow["state"] != "running")

    with hosts["b"].deaf_to(hosts["c"]):
        lab.until(noticed, "b sends nothing")
    more("after b was not heard by c")
    kinds = hosts["b"].kill()
    for kind in kinds:
        hosts["b"].start(kind)
    more("after b has died")
    hosts["a"].signal(signal.SIGSTOP)
    lab.until(lambda: lab.status()["flows"][0]["state"] != "running", "a stands still")
    hosts["a"].signal(signal.SIGCONT)
    more("after a stood still")
    lab.ensemble.servers[0].kill()
    more("without ZooKeeper")
    lab.ensemble.servers[0].start()
    run.ends()


@pytest.mark.soak
def test_recovery_proceeds_during_a_one_way_partition_at_the_leader(lab: Lab) -> None:
    """No node is on a host with a master, so what nodes send each other arrives. The simulation has
    the same case in seconds."""
    run = Joined(lab, (("master", "ab"), ("node", "cd"), ("front", "d")), nodes=2, records=2000)
    run.more("at all")
    hosts = lab.hosts
    leader, other = ("a", "b") if "leads now" in hosts["a"].log("master") else ("b", "a")
    assert "leads now" not in hosts[other].log("master")
    with hosts["c"].deaf_to(hosts[leader]):
        [node] = hosts["d"].processes("node")
        with_pid(node, signal.SIGKILL)
        run.more("while there is the hole")
        run.ends()
    assert "leads now" in hosts[other].log("master")
