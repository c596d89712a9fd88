"""Driftline as a measured system: the inverted index on a local cluster.

This process has the front, with documents in memory for a replay, and the consumer: it sends,
receives and measures, like the server in the paper's experiments (section VI-A).
"""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from itertools import groupby
from math import inf
from pathlib import Path
from time import monotonic, perf_counter

from driftline.bench.measuring.corpus import Documents
from driftline.bench.measuring.meter import Arrival
from driftline.bench.systems.running import Running
from driftline.deploy.host.process import ProcessConfig, new_id
from driftline.deploy.host.runtime import Runtime
from driftline.deploy.host.supervisor import LocalCluster
from driftline.deploy.parties.consumer import ConsumerServer
from driftline.deploy.parties.front import WINDOW, Front
from driftline.deploy.parties.watch import Watch
from driftline.engine.errors import Unavailable
from driftline.engine.flow.loading import load_flow
from driftline.engine.flow.plan import plan
from driftline.engine.policy import policy
from driftline.engine.sinks.consumer import NO_BUNDLE, Consumer, Last
from driftline.engine.sources import QueueSource
from driftline.engine.wire.bundles import payload_columns
from driftline.engine.wire.messages import Bundle

START_S = 30.0


class PassingConsumer:
    """Passes outputs on, and remembers the last bundle of each barrier in memory."""

    def __init__(self) -> None:
        self._last: dict[str, Last] = {}

    def deliver(self, bundle: Bundle) -> None:
        """Pass a bundle on, then remember it."""
        self.take(bundle)
        self._last[bundle.barrier] = Last(bundle.t_last, bundle.checksum, bundle.blobs)

    def take(self, bundle: Bundle) -> None:
        """Handle the outputs of a bundle."""
        raise NotImplementedError

    def last(self, barrier: str, groups: tuple[int, int]) -> Last:
        """The last bundle of a barrier."""
        return self._last.get(barrier, NO_BUNDLE)

    def close(self) -> None:
        """Do nothing: there is nothing to release."""


class CountingConsumer(PassingConsumer):
    """Collects the arrivals of records for the meter."""

    def __init__(self, documents: Documents) -> None:
        super().__init__()
        self.arrivals: list[Arrival] = []
        self._numbers = {document: number for number, (document, _) in enumerate(documents)}

    def take(self, bundle: Bundle) -> None:
        """Add an arrival for each document in a bundle; in label order, a blob has one document."""
        numbers = self._numbers
        for blob in bundle.blobs:
            words, ids, _, _ = payload_columns(blob, 4)
            now = perf_counter()
            start = 0
            for document, records in groupby(ids):  # several documents under policies without order
                end = start + len(list(records))
                self.arrivals.append((numbers[str(document)], words[start:end], now))
                start = end


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
        window: int = WINDOW,
        flow: str = "driftline.index",
        consumer: Consumer | None = None,
    ) -> None:
        self.documents = documents
        self._directory = tempfile.mkdtemp(prefix="driftline-bench-")
        sockets = Path(self._directory) / "sockets"
        sockets.mkdir()
        flow_plan = plan(load_flow(flow))
        config = ProcessConfig(
            flow=flow,
            nodes=nodes,
            policy=policy_name,
            ordering=ordering,
            checkpoint_s=checkpoint_s,
            state=str(Path(self._directory) / "state"),
            sockets=str(sockets),
            identity=flow_plan.identity(),
            run="bench",
            dead_letters=False,
        )
        self.source = QueueSource("documents")
        self.consumer = CountingConsumer(documents)
        self.runtime = Runtime()
        self.front = Front(
            0,
            nodes,
            flow_plan,
            policy(policy_name, ordering),
            self.source,
            new_id,
            process="bench",
            run=config.run,
            window=window,
        )
        self.front.address = self.runtime.add(self.front, config.address("front-0"))
        self.front.addresses["master"] = config.address("master")
        chosen = self.consumer if consumer is None else consumer
        self.server = ConsumerServer(lambda barrier: chosen)
        self.runtime.add(self.server, config.address("consumer"))
        self.watch = Watch(every_s=inf)
        self.watch.address = self.runtime.add(self.watch, config.address("watch"))
        self.cluster = LocalCluster(config)

    def start(self) -> None:
        """Start the cluster. Raises Unavailable if it has not started within START_S."""
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
        self.source.put({"id": document, "text": text})
        self.front.turn()
        self.runtime.flush(self.front)

    def receive(self) -> list[Arrival]:
        """The records that have arrived since the last call."""
        self.runtime.step(more=True)
        arrivals, self.consumer.arrivals = self.consumer.arrivals, []
        return arrivals

    def wait(self, timeout_ms: int) -> None:
        """Sleep until a record has arrived, but no longer than `timeout_ms`."""
        if not self.consumer.arrivals:
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
        shutil.rmtree(self._directory, ignore_errors=True)
