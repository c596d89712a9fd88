"""Driftline as a measured system of agents, some of whose processes are killed, once.

The flow runs as users submit it: two hosts have agents for nodes, one of them also one for the
front, and the masters' agents are apart. This process is a producer, which sends to the front over
TCP; it reads the outputs of the nodes as they are committed, and it is what starts the agents, at
once when one has ended, as the init of a host does.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from queue import Empty, SimpleQueue
from random import choice
from socket import create_server
from time import monotonic, sleep

import psutil

from driftline.bench.measuring.corpus import Documents
from driftline.bench.measuring.meter import Arrival
from driftline.bench.systems.agents import Agent
from driftline.bench.systems.committed import Committed
from driftline.bench.systems.death import Death
from driftline.bench.systems.running import Running
from driftline.deploy.cluster.submissions import agents
from driftline.deploy.cluster.submitting import Order, submit
from driftline.deploy.cluster.tree import FLOWS, Tree
from driftline.deploy.host.config import SESSION_S, Reading
from driftline.deploy.producer import Producer
from driftline.deploy.zookeeper.ensemble import FREE_PORTS, LOOPBACK
from driftline.engine.errors import DriftlineError, Unavailable
from driftline.engine.events import about, log
from driftline.engine.flow.loading import load_flow
from driftline.engine.policy import policy

FLOW = "driftline.index"

START_S = 60.0

LOOK_EVERY_S = 0.001
"""How often the loop of the measurement looks for outputs."""


PAUSE_S = 0.2
"""After so long without a record the producer sees to it that all are stored."""


class Hosts(Running):
    """A cluster whose registry is in ZooKeeper, at a path of its own."""

    def __init__(
        self,
        documents: Documents,
        killed: str,
        death: Death,
        *,
        spares: int,
        nodes: int,
        checkpoint_s: float,
        zookeeper: str,
    ) -> None:
        """`killed`: "master" (the one that leads; a spare is one that stands by), "front" (its
        process), or "host" (the one that has the front, and nodes)."""
        self.directory = Path(tempfile.mkdtemp(prefix="driftline-bench-"))
        self._documents, self._killed, self._death = documents, killed, death
        self._spares, self._nodes, self._checkpoint_s = spares, nodes, checkpoint_s
        self._zookeeper = zookeeper
        masters = ["a", "b"] if killed == "master" and spares else ["a"]
        places = [("master", host) for host in masters]
        places += [("node", "a"), ("node", "b"), ("front", "a")]
        given = self.directory, zookeeper, nodes
        self._agents = {f"{kind}-{host}": Agent(kind, host, *given) for kind, host in places}
        self._output = self.directory / "out"
        numbers = {document: number for number, (document, _) in enumerate(documents)}
        self._committed = Committed(self._output, nodes, numbers)
        self._sender: Sender | None = None
        self._leader = ""

    def start(self) -> None:
        """Start all, and wait until the flow runs. Raises Unavailable."""
        for agent in self._agents.values():
            agent.start()
        address = f"tcp://{LOOPBACK}:{_free_port()}"
        with closing(Tree(self._zookeeper, SESSION_S)) as tree:
            self._until(lambda: len(agents(tree)) == len(self._agents), "all agents")
            order = Order(
                name="index",
                flow=FLOW,
                reading=Reading((address,)),
                output=self._output,
                nodes=self._nodes,
                policy=policy("exactly-once"),
                checkpoint_s=self._checkpoint_s,
                dead_letters=False,
                spares=self._spares if self._killed == "front" else 0,
            )
            flow = submit(tree, load_flow(FLOW), order).name
            masters = sum(agent.kind == "master" for agent in self._agents.values())
            queue = f"{FLOWS}/{flow}/masters"
            self._until(lambda: len(tree.children(queue)) == masters, "all masters")
            with closing(tree.masters(flow, lambda: None)) as succession:
                self._leader, _ = succession.leader()
            self._until(lambda: self._told("running"), "the flow")
        self._sender = Sender(address)

    def send(self, number: int) -> None:
        """Hand over a document, after the kill if its time has come."""
        if self._death.due(number) and self._is_ready():
            self._kill()
        assert self._sender is not None
        document, text = self._documents[number]
        self._sender.send({"id": document, "text": text})

    def receive(self) -> list[Arrival]:
        """The outputs that were committed since the last call."""
        arrivals = list(self._committed.arrivals())
        self._death.note(arrivals)
        return arrivals

    def wait(self, timeout_ms: int) -> None:
        """Sleep until outputs are committed, but no longer than `timeout_ms`."""
        give_up_at = monotonic() + timeout_ms / 1000
        while not self._committed.news and monotonic() < give_up_at:
            sleep(LOOK_EVERY_S)

    def log_lines(self) -> Iterator[str]:
        """What the agents and all processes have said."""
        for agent in self._agents.values():
            yield from agent.log_lines()

    def close(self) -> None:
        """End everything and remove all files. May be called any number of times."""
        if self._sender is not None:
            self._sender.close()
        running = [each for agent in self._agents.values() for each in agent.processes]
        for each in running:
            if each.is_running():
                each.kill()
        for agent in self._agents.values():
            agent.ended()
        psutil.wait_procs(running, timeout=START_S)
        shutil.rmtree(self.directory, ignore_errors=True)

    def _is_ready(self) -> bool:
        """Whether the spare of what is to be killed is ready."""
        return self._killed != "front" or not self._spares or self._told("spare-ready", "front-a")

    def _kill(self) -> None:
        if self._killed == "host":
            hosted = [self._agents["node-a"], self._agents["front-a"]]
            self._death.kill([each.pid for agent in hosted for each in agent.processes])
            for agent in hosted:
                agent.ended()
                told = about("process-died", name=agent.name)
                log.warning("%s was killed; it is started again", agent.name, extra=told)
                agent.start()
            return
        what = ("process", self._leader) if self._killed == "master" else ("role", "front")
        found = [agent.pid_of(*what) for agent in self._agents.values()]
        self._death.kill([pid for pid in found if pid is not None])

    def _told(self, event: str, agent: str = "") -> bool:
        """Whether this was told, by this agent if one is named."""
        chosen = [self._agents[agent]] if agent else self._agents.values()
        lines = (line for each in chosen for line in each.log_lines())
        return any(json.loads(line)["event"] == event for line in lines)

    def _until(self, condition: Callable[[], bool], what: str) -> None:
        give_up_at = monotonic() + START_S
        while not condition():
            ended = [agent for agent in self._agents.values() if not agent.runs]
            if ended or monotonic() > give_up_at:
                said = "\n".join(agent.said for agent in ended or self._agents.values())
                raise Unavailable(f"{what}: not there within {START_S:g} s\n{said}")
            sleep(0.05)


class Sender:
    """A producer in a thread of its own: what it waits for is no matter of the measurement."""

    def __init__(self, address: str) -> None:
        """Raises Unavailable if the front does not answer."""
        self._producer = Producer(address, "bench")
        self._records: SimpleQueue[object] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="producer", daemon=True)
        self._thread.start()

    def send(self, record: object) -> None:
        """Send a record soon."""
        self._records.put(record)

    def close(self) -> None:
        """Send no more. May be called any number of times."""
        self._records.put(None)
        self._thread.join()

    def _run(self) -> None:
        try:
            while True:
                try:
                    record = self._records.get(timeout=PAUSE_S)
                except Empty:
                    self._producer.flush()
                    continue
                if record is None:
                    return
                self._producer.send(record)
        except DriftlineError as error:
            log.error("%s", error, extra=about("failed", error=type(error).__name__))
        finally:
            self._producer.close()


def _free_port() -> int:
    """A port that nobody has, and that the kernel gives to no connection."""
    while True:
        port = choice(FREE_PORTS)
        try:
            create_server((LOOPBACK, port)).close()
        except OSError:
            continue
        return port
