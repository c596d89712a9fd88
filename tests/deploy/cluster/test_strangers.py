"""Strangers at a real cluster, and the death of ZooKeeper's leader: the flow goes on meanwhile."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from random import Random
from socket import socket

import psutil
import pytest
import zmq

from driftline.deploy.producer import Producer
from driftline.deploy.runtime.sockets.keys import read_key
from driftline.engine.errors import NotPermitted, Unavailable
from driftline.engine.wire.messages import Alive, encode
from tests.deploy.cluster.lab import Host, Lab
from tests.deploy.runtime.raw_peer import COMMAND, LONG, Peer, frame, head
from tests.deploy.runtime.test_strangers_at_members import CURVE_GREETING
from tests.zookeepers import needs_zookeeper

FLOW = """
from driftline import Flow, ValueState

def counted(record, count):
    count.set((count.get() or 0) + 1)
    return {"source": record[0], "number": record[1], "count": count.get()}

flow = Flow("counted")
one = flow.source("one").map(lambda n: ("one", n))
one.union(flow.source("two").map(lambda n: ("two", n))).key_by(lambda r: r[0]).scan(
    counted, ValueState("count")
).sink("counts")
"""

PORTS = {"one": 7001, "two": 7002}
RECORDS = 300
CROWD = 10_000
LISTENS = "0A"
"""The state of a socket in the table of the kernel."""

GARBAGE = (
    b"GET / HTTP/1.1\r\n\r\n",
    bytes(1000),
    CURVE_GREETING + frame(Random(1).randbytes(300), COMMAND),
    CURVE_GREETING + head(1 << 30) + bytes(1 << 16),
    CURVE_GREETING + head(1 << 30, COMMAND | LONG) + bytes(1 << 16),
)


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    needs_zookeeper()
    with Lab(tmp_path, ["a", "b"], PORTS).built(servers=3) as lab:
        for kind, where in (("master", "ab"), ("node", "ab"), ("front", "ab")):
            for name in where:
                lab.hosts[name].start(kind)
        lab.until(lambda: len(lab.status()["agents"]) == 6, "all agents")
        yield lab


def test_zookeepers_leader_dies_and_strangers_come(lab: Lab, tmp_path: Path) -> None:
    (tmp_path / "flow.py").write_text(FLOW)
    inputs = [word for name in PORTS for word in ("--input", f"{name}=tcp://*:{PORTS[name]}")]
    lab.command("submit", tmp_path / "flow.py", *inputs, "--output", tmp_path / "out", "--nodes",
                "2", "--checkpoint-ms", "300")  # fmt: skip
    lab.until(lambda: bool(lab.status()["flows"][0]["state"] == "running"), "it runs")
    places = lab.status()["flows"][0]["fronts"]
    fronts = {name: lab.hosts[p.partition("-")[0]] for name, p in zip(PORTS, places, strict=True)}

    def count() -> int:
        return sum(f.read_bytes().count(b"\n") for f in (tmp_path / "out").glob("*.jsonl"))

    def producer(source: str, key: str) -> Producer:
        public = read_key(lab.keys / f"{fronts[source].name}.key").public
        at = f"tcp://{fronts[source].address}:{PORTS[source]}#{public}"
        return Producer(at, key, keys=lab.keys / f"{key}.key", timeout_s=60)

    def send(one: Producer, two: Producer) -> None:
        before = one.acknowledged
        for number in range(before + 1, before + RECORDS + 1):
            one.send(number)
            two.send(number)
        one.flush()
        two.flush()
        lab.until(lambda: count() == 2 * (before + RECORDS), "all outputs")

    with ExitStack() as stack:
        both = tuple(stack.enter_context(producer(name, name)) for name in PORTS)
        send(*both)
        status = lab.status()["flows"][0]
        before, snapshot = status["incarnation"], status["last_snapshot"]["number"]
        leader = lab.ensemble.leader()
        leader.kill()
        send(*both)
        lab.until(
            lambda: bool(lab.status()["flows"][0]["last_snapshot"]["number"] > snapshot),
            "a snapshot with the other servers",
        )
        leader.start()
        memory = {pid: psutil.Process(pid).memory_info().rss for pid in everybody(lab)}
        for host in lab.hosts.values():
            molest(lab, host)
        with pytest.raises((NotPermitted, Unavailable)), producer("two", "one") as wrong:
            wrong.send(0)
        send(*both)
        assert lab.status()["flows"][0]["incarnation"] == before
        now = {pid: psutil.Process(pid).memory_info().rss for pid in everybody(lab)}
        assert now.keys() == memory.keys(), "no process has died"
        assert all(now[pid] < memory[pid] + (64 << 20) for pid in now)
    lab.command("stop", "counted")
    found: dict[str, list[object]] = {name: [] for name in PORTS}
    for file in (tmp_path / "out").glob("*.jsonl"):
        for line in file.read_text().splitlines():
            value = json.loads(line)["value"]
            assert value["count"] == value["number"]
            found[value["source"]].append(value["number"])
    assert found == {name: list(range(1, 3 * RECORDS + 1)) for name in PORTS}
    said = lab.logs(all_lines=True)
    assert "Traceback" not in said
    assert "speaks for" in said or "does not speak" in said or "not authorised" in said
    assert all(
        file.read_bytes().count(b"\n") < 200 for h in lab.hosts.values()
        for file in h.folder.glob("*.log")
    )  # fmt: skip


def everybody(lab: Lab) -> list[int]:
    return [pid for host in lab.hosts.values() for pid in host.pids()]


def listening(host: Host) -> list[int]:
    """The ports at which the processes of a host listen."""
    pid = next(iter(host.agents.values())).pid
    lines = Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]
    fields = [line.split() for line in lines]
    return sorted(int(each[1].partition(":")[2], 16) for each in fields if each[3] == LISTENS)


def molest(lab: Lab, host: Host) -> None:
    """Come to each port of a host without a key, with garbage, with another's name, as a crowd."""
    ports = listening(host)
    assert len(ports) >= 6, ports
    public = read_key(lab.keys / f"{host.name}.key").public
    with zmq.Context() as context:
        for port in ports:
            endpoint = f"tcp://{host.address}:{port}"
            for said in GARBAGE:
                with Peer(endpoint, shaken=False) as peer:
                    peer.try_to_send(said)
            # A producer's key that speaks for no member, and a member's that is not the master's
            # host: both say that they are somebody else.
            for key in (None, "one", "a"):
                with context.socket(zmq.PUSH) as spoken:
                    spoken.linger = 200
                    if key is not None:
                        own = read_key(lab.keys / f"{key}.key")
                        spoken.setsockopt_string(zmq.CURVE_SERVERKEY, public)
                        spoken.setsockopt_string(zmq.CURVE_PUBLICKEY, own.public)
                        spoken.setsockopt_string(zmq.CURVE_SECRETKEY, own.secret)
                    spoken.connect(endpoint)
                    with suppress(zmq.Again):  # it may be refused before the second one
                        spoken.send(encode(("shop", 0, 0), Alive("stranger", 1, 0)), zmq.NOBLOCK)
                        spoken.send(b"\xc1garbage", zmq.NOBLOCK)
            crowd(host.address, port, CROWD // 2 // len(ports))


def crowd(host: str, port: int, count: int) -> None:
    """Connections that say nothing; whoever is not let in waits outside."""
    with ExitStack() as stack:
        for _ in range(count):
            one = stack.enter_context(socket())
            one.setblocking(False)
            one.connect_ex((host, port))
