"""Driftline as a measured system: the inverted index on a local cluster.

This process has the front and measures, like the server in the paper's experiments (section VI-A).
Where documents come from and outputs go is a matter of `ends`.
"""

from __future__ import annotations

import logging
import shutil
import tempfile
from collections import Counter
from dataclasses import replace
from math import inf
from pathlib import Path
from time import monotonic

from driftline.bench.measuring.corpus import Documents
from driftline.bench.measuring.meter import Arrival
from driftline.bench.systems.cases import IPC
from driftline.bench.systems.ends import DurableEnds, Ends, MemoryEnds
from driftline.bench.systems.network import networks
from driftline.bench.systems.running import Running
from driftline.deploy.host.children.supervisor import LocalCluster
from driftline.deploy.host.config import ProcessConfig
from driftline.deploy.host.loop.runtime import Runtime
from driftline.deploy.host.process import new_id
from driftline.deploy.parties.front import Front
from driftline.deploy.parties.watch import Watch
from driftline.deploy.parties.window import WINDOW
from driftline.engine.errors import Unavailable
from driftline.engine.flow.loading import load_flow
from driftline.engine.flow.plan import plan
from driftline.engine.policy import policy

FLOW = "driftline.index"

START_S = 30.0


class Engine(Running):
    """A running cluster with its producer and its consumer."""

    def __init__(
        self,
        documents: Documents,
        policy_name: str,
        *,
        nodes: int = 2,
        ordering: str = "speculative",
        checkpoint_s: float = 1.0,
        durable: bool = False,
        spares: int = 0,
        log_level: int = logging.WARNING,
        transport: str = IPC,
    ) -> None:
        self.documents = documents
        self.directory = Path(tempfile.mkdtemp(prefix="driftline-bench-"))
        sockets = self.directory / "sockets"
        sockets.mkdir()
        flow_plan = plan(load_flow(FLOW))
        of_nodes, of_ends = networks(transport, self.directory)
        config = ProcessConfig(
            flow=FLOW,
            nodes=nodes,
            policy=policy_name,
            ordering=ordering,
            checkpoint_s=checkpoint_s,
            state=str(self.directory / "state"),
            sockets=str(sockets),
            identity=flow_plan.identity(),
            run="bench",
            dead_letters=False,
            log_level=log_level,
            network=of_nodes,
        )
        here = replace(config, network=of_ends)
        chosen = policy(policy_name, ordering)
        self.ends: Ends = (
            DurableEnds(documents, chosen, sockets, FLOW) if durable else MemoryEnds(documents)
        )
        self.runtime = Runtime(transport=here.transport())
        self.front = Front(
            0,
            nodes,
            flow_plan,
            chosen,
            self.ends.source,
            new_id,
            process="bench",
            run=config.run,
            window=WINDOW,
        )
        self.front.address = self.runtime.add(self.front, here.inbox("front-0"))
        self.front.addresses["master"] = config.address("master")
        self.ends.attach(self.runtime, here)
        self.watch = Watch(every_s=inf)
        self.watch.address = self.runtime.add(self.watch, here.inbox("watch"))
        self.cluster = LocalCluster(config, spares)

    def start(self) -> None:
        """Start the cluster. Raises Unavailable if it has not started within START_S."""
        self.ends.start()
        self.cluster.__enter__()
        deadline = monotonic() + START_S
        while not self.front.incarnation:
            self.runtime.step(wait_s=0.05)
            self.cluster.supervise()
            if monotonic() > deadline:
                raise Unavailable(f"the cluster did not start within {START_S:g} s")

    def send(self, number: int) -> None:
        """Hand over a document."""
        document, text = self.documents[number]
        self.put({"id": document, "text": text})
        self.front.turn()
        self.runtime.flush(self.front)

    def put(self, record: object) -> None:
        """Give a record to the source; the front takes it in its next turn."""
        self.ends.put(record, self.runtime)

    def receive(self) -> list[Arrival]:
        """The outputs that have arrived since the last call."""
        self.runtime.step(more=True)
        arrivals = self.ends.arrivals.copy()
        self.ends.arrivals.clear()
        return arrivals

    def wait(self, timeout_ms: int) -> None:
        """Sleep until an output has arrived, but no longer than `timeout_ms`."""
        if not self.ends.arrivals:
            self.runtime.step(wait_s=timeout_ms / 1000)

    def figures(self) -> dict[str, int]:
        """The sums of the nodes' figures, by name."""
        nodes = {n: a for n, a in self.front.addresses.items() if n.startswith("node-")}
        self.watch.reports.clear()
        self.watch.addresses.update(nodes)
        self.watch.ask()
        deadline = monotonic() + START_S
        while len(self.watch.reports) < len(nodes) and monotonic() < deadline:
            self.runtime.step(wait_s=0.05)
        total: Counter[str] = Counter()
        for report in self.watch.reports.values():
            total.update(dict(report.figures))
        return dict(total)

    def close(self) -> None:
        """End the cluster and remove its files. May be called any number of times."""
        self.cluster.stop(wait_s=0.0)
        self.runtime.close(linger_ms=0)
        self.ends.close()
        shutil.rmtree(self.directory, ignore_errors=True)
