"""A live flow on three hosts with a fault every few seconds: its outputs are correct.

SOAK_MINUTES=15 SOAK_SEED=1 pytest -m soak -n 0 tests/soak/test_cluster.py

Three ZooKeeper servers, two masters, three agents for nodes, two fronts; two producers send 50
records a second each. Needs root, as hosts are network namespaces. The plot is in
`out/soak-cluster.png`, the log of faults in `out/soak-cluster.log`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from threading import Event
from time import monotonic

import pytest

from driftline import run_reference
from driftline.deploy.runtime.loop.runtime import UNUSED_S
from driftline.deploy.runtime.sockets.keys import read_key
from tests.deploy.cluster.lab import Lab
from tests.soak.cluster.faults import FaultInjector
from tests.soak.cluster.flow import alone
from tests.soak.cluster.samples import ClusterSamples, sockets, z_nodes
from tests.zookeepers import needs_zookeeper

pytestmark = pytest.mark.soak

ROOT = Path(__file__).resolve().parents[2]
OUT = ROOT / "out"

MINUTES = float(os.environ.get("SOAK_MINUTES", "15"))
SEED = int(os.environ.get("SOAK_SEED", "1"))
RATE = 50.0
PORTS = {"one": 7001, "two": 7002}
FLOW = "chained"

COUNT = 3
"""Initial number of nodes; faults change it."""

LONG_S = 24 * 3600.0
"""Seconds after which producers stop; a signal stops them before."""

GROWTH_MAX, MORE_MAX_MIB = 1.25, 16


def label_of(line: dict[str, object]) -> list[int]:
    label = line["t"]
    assert isinstance(label, list)
    return label


class ClusterSoak:
    """The flow in its lab, and its producers."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.output = lab.folder / "out"
        self.began = monotonic()
        self.samples = ClusterSamples()
        self.z_nodes: list[dict[str, int]] = []
        self.sockets: list[int] = []
        self.quiet: list[float] = []
        """Times at which everything was counted."""
        self.producers: dict[str, subprocess.Popen[str]] = {}
        OUT.mkdir(exist_ok=True)
        self._story = (OUT / "soak-cluster.log").open("w", buffering=1)

    def tell(self, text: str) -> None:
        print(f"{monotonic() - self.began:7.1f} {text}", file=self._story)

    def begin(self) -> None:
        lab = self.lab
        for kind, where in (("master", "ab"), ("node", "abc"), ("front", "bc")):
            for name in where:
                lab.hosts[name].start(kind)
        lab.until(lambda: len(lab.status()["agents"]) == 7, "all agents")
        inputs = [w for name, port in PORTS.items() for w in ("--input", f"{name}=tcp://*:{port}")]
        flow = ROOT / "tests" / "soak" / "cluster" / "flow.py"
        lab.command("submit", flow, *inputs, "--nodes", COUNT, "--output", self.output,
                    "--snapshot-interval-ms", 500)  # fmt: skip
        self.until_running()
        fronts = [front["agent"] for front in lab.status()["flows"][0]["inputs"]]
        for (name, port), place in zip(PORTS.items(), fronts, strict=True):
            host = lab.hosts[place.partition("-")[0]]
            public = read_key(lab.keys / f"{host.name}.key").public
            at = f"tcp://{host.address}:{port}#{public}"
            words = at, name, RATE, LONG_S, lab.keys / f"{name}.key"
            self.producers[name] = subprocess.Popen(
                [sys.executable, "-m", "tests.soak.live.producer", *map(str, words)],
                cwd=ROOT, stdout=subprocess.PIPE, text=True,
            )  # fmt: skip

    def count(self) -> int:
        return sum(file.read_bytes().count(b"\n") for file in self.output.glob("*.jsonl"))

    def until_running(self) -> None:
        lab = self.lab
        lab.until(lambda: len(lab.status()["agents"]) == 7, "all agents")
        lab.until(lambda: bool(lab.status()["flows"][0]["state"] == "running"), "it runs")

    def rest(self) -> None:
        """Rescale to the initial number of nodes, wait for idle connections to close, and count.

        The number of sockets depends on the number of nodes. Sockets to nodes of earlier layouts
        are closed while unused.
        """
        self.until_running()
        self.lab.command("rescale", FLOW, COUNT)
        self.tell(f"no faults for {2 * UNUSED_S} s")
        Event().wait(2 * UNUSED_S)
        self.until_quiet()

    def until_quiet(self) -> None:
        """Wait until all processes run and outputs arrive; then count everything."""
        self.tell("quiet")
        begun = monotonic()
        self.until_running()
        before = self.count()
        self.lab.until(lambda: self.count() > before + RATE, "outputs")
        self.lab.until(lambda: self._lag_s() < 2.0, "what was held back is delivered")
        self.tell(f"running again after {monotonic() - begun:.1f} s")
        now = monotonic() - self.began
        for _ in range(5):
            self.samples.take_all(now, self.lab)
        self.quiet.append(now)
        self.z_nodes.append(z_nodes(self.lab.zookeeper))
        self.sockets.append(sockets(self.lab))
        self.tell(f"znodes {self.z_nodes[-1]}, sockets {self.sockets[-1]}")

    def _lag_s(self) -> float:
        lag = self.lab.status()["flows"][0]["lag_s"]
        return float("inf") if lag is None else float(lag)

    def stored(self) -> dict[str, int]:
        """Return the number of stored records of each producer, as it reports at its end."""
        found = {}
        for name, process in self.producers.items():
            process.terminate()
            log_text, _ = process.communicate(timeout=300)
            assert process.returncode == 0
            found[name] = int(log_text)
        return found

    def lines(self) -> list[dict[str, object]]:
        """Return all outputs by label; check that each file is in label order."""
        found: list[dict[str, object]] = []
        for file in self.output.glob("*.jsonl"):
            lines = [json.loads(line) for line in file.read_text().splitlines()]
            assert lines == sorted(lines, key=label_of), file
            found += lines
        return sorted(found, key=label_of)


@pytest.fixture
def soak(tmp_path: Path) -> Iterator[ClusterSoak]:
    needs_zookeeper()
    with Lab(tmp_path, ["a", "b", "c"], PORTS).built(servers=3) as lab, ExitStack() as stack:
        soak = ClusterSoak(lab)
        soak.begin()
        for producer in soak.producers.values():
            stack.callback(producer.kill)
        yield soak


def test_cluster_memory_stays_flat_and_outputs_stay_correct(soak: ClusterSoak) -> None:
    lab = soak.lab
    faults = FaultInjector(lab, SEED, FLOW, soak.tell)
    try:
        soak.until_quiet()
        faults.inject_several()
        soak.rest()
        while monotonic() - soak.began < 60 * MINUTES:
            faults.inject_several()
            soak.until_quiet()
        soak.rest()
        stored = soak.stored()
        lab.command("stop", FLOW)
        assert lab.status()["flows"][0]["state"] == "drained on request"
    except BaseException:
        (OUT / "soak-cluster-agents.log").write_text(lab.logs(all_lines=True))
        raise
    finally:
        soak.samples.draw(OUT / "soak-cluster.png")
    check_outputs(soak, stored)
    check_flat(soak)


def check_outputs(soak: ClusterSoak, stored: dict[str, int]) -> None:
    """Check that each stored record has one output, after those of earlier records."""
    values = [line["value"] for line in soak.lines()]
    records = []
    for value in values:
        assert isinstance(value, dict)
        records.append({"producer": value["producer"], "number": value["number"]})
    for name, count in stored.items():
        numbers = [record["number"] for record in records if record["producer"] == name]
        assert numbers == list(range(1, count + 1)), name
    assert values == [item.value for item in run_reference(alone, [records])]
    soak.tell(f"{len(values)} outputs are as they must be")


def check_flat(soak: ClusterSoak) -> None:
    """Check that no figure has grown between the first and the last count."""
    first, last = soak.quiet[1], soak.quiet[-1]
    assert soak.z_nodes[-1].keys() == soak.z_nodes[1].keys()
    for path, count in soak.z_nodes[-1].items():
        assert count <= soak.z_nodes[1][path] + 1, path
    assert soak.sockets[-1] <= soak.sockets[1] + 1
    for figure, factor, more in (
        ("rss_mib", GROWTH_MAX, MORE_MAX_MIB),
        ("descriptors", 1.0, 6),
        ("threads", 1.0, 3),
    ):
        before, after = (
            with_one_leader(soak.samples.medians(figure, at - 1, at + 1)) for at in (first, last)
        )
        soak.tell(f"{figure} {before} {after}")
        for name in before.keys() & after.keys():
            assert after[name] <= before[name] * factor + more, f"{figure} of {name}"


def with_one_leader(figures: dict[str, float]) -> dict[str, float]:
    """Return the figures by host and role; of the masters, which lead in turn, the larger one."""
    masters = [value for name, value in figures.items() if name.endswith("/master")]
    return {
        **{name: value for name, value in figures.items() if not name.endswith("/master")},
        "the leading master": max(masters),
    }
