"""A flow on three hosts, whose links fail, that stand still, and die: the outputs are the same."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from driftline import run_reference
from driftline.engine.flow.loading import load_flow
from tests.deploy.cluster.lab import Lab
from tests.zookeepers import needs_zookeeper

FLOW = """
import time
from driftline import Flow, ValueState

def joined(record, text):
    time.sleep(0.002)  # so that a run takes a while
    text.set((text.get() or "")[-20:] + record["text"])
    return {"key": record["key"], "text": text.get()}

flow = Flow("joined")
both = flow.source("one").union(flow.source("two"))
both.key_by("key").scan(joined, ValueState("text")).sink("texts")
"""

RECORDS = 6000


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    needs_zookeeper()
    with Lab(tmp_path, ["a", "b", "c"]).built() as lab:
        yield lab


def test_links_that_fail_and_hosts_that_die(lab: Lab, tmp_path: Path) -> None:
    hosts, output = lab.hosts, tmp_path / "out"
    flow, inputs, records = tmp_path / "flow.py", [], []
    flow.write_text(FLOW)
    for source in ("one", "two"):
        file = tmp_path / f"{source}.jsonl"
        records.append([{"key": n % 31, "text": f"{source}{n} "} for n in range(RECORDS)])
        file.write_text("".join(json.dumps(record) + "\n" for record in records[-1]))
        inputs += ["--input", f"{source}={file}"]
    for kind, where in (("master", "ab"), ("node", "abc"), ("front", "ac")):
        for name in where:
            hosts[name].start(kind)
    lab.until(lambda: len(lab.status()["agents"]) == 7, "all agents")
    lab.command("submit", flow, *inputs, "--output", output, "--nodes", "3", "--window", "100",
                "--checkpoint-ms", "300")  # fmt: skip

    def count() -> int:
        return sum(file.read_bytes().count(b"\n") for file in output.glob("*.jsonl"))

    def more(what: str, outputs: int = 400) -> None:
        until = min(count() + outputs, 2 * RECORDS)
        lab.until(lambda: count() >= until, f"outputs {what}")

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
    lab.until(lambda: lab.status("b")["flows"][0]["state"] != "running", "a stands still")
    hosts["a"].signal(signal.SIGCONT)
    more("after a stood still")
    lab.ensemble.servers[0].kill()
    more("without ZooKeeper")
    lab.ensemble.servers[0].start()
    lab.until(lambda: bool(lab.status()["flows"][0]["over"]), "the end")
    assert lab.status()["flows"][0]["state"] == "complete"
    network = "--bind", hosts["c"].address, "--keys", lab.keys / "c.key"
    said = lab.command("logs", "joined", "--json", "--lines", 10_000, *network, host="c")
    told = {json.loads(line)["agent"] for line in said.splitlines()}
    assert told == {agent["name"] for agent in lab.status()["agents"]}
    loaded = load_flow(str(flow))
    expected: dict[object, list[object]] = {}
    for item in run_reference(loaded, records):
        assert isinstance(item.value, dict)
        expected.setdefault(item.value["key"], []).append(item.value["text"])
    found: dict[object, list[object]] = {}
    for file in output.glob("*.jsonl"):
        for line in file.read_text().splitlines():
            value = json.loads(line)["value"]
            found.setdefault(value["key"], []).append(value["text"])
    assert found == expected
