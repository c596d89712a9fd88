"""Driftline as a measured system: the inverted index on a local cluster.

The measuring process contains the front and the meter, like the server in the experiments of the
paper "Delivery, consistency, and determinism" (section VI-A). `Engine` keeps documents and outputs
in the memory of the measuring process. `DurableEngine` uses the parts of a run with producers:
`ReceivedSource` with its input log at the front, and a consumer that writes JSON lines. The
consumer is a separate process (`engine_consumer`), so that its writes do not slow down the
producer.
"""

from __future__ import annotations

import logging
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator
from math import inf
from pathlib import Path
from time import monotonic, perf_counter, time_ns

import zmq

from driftline.bench.measuring.corpus import Documents
from driftline.bench.measuring.meter import Arrival
from driftline.bench.systems.engine_consumer import words_by_document
from driftline.bench.systems.processes import (
    READY,
    Context,
    StartedProcesses,
    inbox,
    start_module,
    unpack_stored,
)
from driftline.connectors.logs.inputlog import InputLog
from driftline.connectors.logs.received import Receipt, ReceivedSource
from driftline.connectors.sinks.consumer import NO_BUNDLE, LastStored
from driftline.deploy.roles.consumer import ConsumerServer
from driftline.deploy.roles.front import Front
from driftline.deploy.roles.intake import Receiver
from driftline.deploy.roles.status_poller import StatusPoller
from driftline.deploy.runtime.config import ProcessConfig
from driftline.deploy.runtime.loop.runtime import Runtime
from driftline.deploy.runtime.process import new_id
from driftline.deploy.runtime.supervision.cluster import LocalCluster
from driftline.engine.errors import MalformedMessage, Unavailable
from driftline.engine.flow.loading import load_flow
from driftline.engine.flow.plan import make_plan
from driftline.engine.policy import Output, get_policy
from driftline.engine.sources import BadRecord, QueueSource, RetainedSource, Source
from driftline.engine.wire.messages import Bundle, Message

FLOW = "driftline.index"

PRODUCER = "bench"

START_TIMEOUT_S = 30.0
"""Timeout for the start of the cluster and of a consumer process, and for the nodes' figures."""


class Engine(StartedProcesses):
    """A running cluster with producer and consumer in memory."""

    def __init__(
        self,
        documents: Documents,
        policy_name: str,
        *,
        flow: str = FLOW,
        nodes: int = 2,
        ordering: str = "speculative",
        snapshot_interval_s: float = 1.0,
        log_level: int = logging.WARNING,
    ) -> None:
        self.documents = documents
        self.numbers = {document: number for number, (document, _) in enumerate(documents)}
        """Document id -> index of the document in `documents`."""
        self.arrivals: list[Arrival] = []
        """Outputs that have arrived since the last `receive`."""
        self.directory = Path(tempfile.mkdtemp(prefix="driftline-bench-"))
        self.sockets = self.directory / "sockets"
        self.sockets.mkdir()
        self.policy = get_policy(policy_name, ordering)
        flow_plan = make_plan(load_flow(flow))
        self.config = ProcessConfig(
            flow=flow,
            nodes=nodes,
            policy=policy_name,
            ordering=ordering,
            snapshot_interval_s=snapshot_interval_s,
            state=str(self.directory / "state"),
            sockets=str(self.sockets),
            identity=flow_plan.identity(),
            run="bench",
            dead_letters=False,
            log_level=log_level,
        )
        self.runtime = Runtime(transport=self.config.transport())
        source = self.open_source()
        self.front = Front(
            0, nodes, flow_plan, self.policy, source, new_id,
            process="bench", run=self.config.run,
        )  # fmt: skip
        self.front.address = self.runtime.add(self.front, self.config.inbox("front-0"))
        self.front.addresses["master"] = self.config.address("master")
        self.add_consumer()
        self.status_poller = StatusPoller(every_s=inf)
        self.status_poller.address = self.runtime.add(
            self.status_poller, self.config.inbox("watch")
        )
        self.cluster = LocalCluster(self.config)

    def open_source(self) -> Source | RetainedSource:
        """Open the source of the front."""
        self._queue = QueueSource("documents")
        return self._queue

    def add_consumer(self) -> None:
        """Add the consumer of the nodes' outputs to the runtime."""
        consumer = ArrivalConsumer(self.numbers, self.arrivals)
        self.runtime.add(ConsumerServer(lambda barrier: consumer), self.config.inbox("consumer"))

    def put(self, record: object) -> None:
        """Put a record into the source; the front reads it in its next turn."""
        self._queue.put(record)

    def start(self) -> None:
        """Start the cluster. Raises Unavailable after START_TIMEOUT_S."""
        self.cluster.__enter__()
        deadline = monotonic() + START_TIMEOUT_S
        while not self.front.incarnation:
            self.runtime.step(wait_s=0.05)
            self.cluster.supervise()
            if monotonic() > deadline:
                raise Unavailable(f"the cluster did not start within {START_TIMEOUT_S:g} s")

    def send(self, number: int) -> None:
        """Send document `number` through the front."""
        document, text = self.documents[number]
        self.put({"id": document, "text": text})
        self.front.turn()
        self.runtime.flush(self.front)

    def receive(self) -> list[Arrival]:
        """Return the outputs that arrived since the last call."""
        self.runtime.step(more=True)
        arrivals = self.arrivals.copy()
        self.arrivals.clear()
        return arrivals

    def wait(self, timeout_ms: int) -> None:
        """Wait at most `timeout_ms` for a message, which need not be an output."""
        if not self.arrivals:
            self.runtime.step(wait_s=timeout_ms / 1000)

    def figures(self) -> dict[str, int]:
        """Return the nodes' counters by name, summed over the nodes that answer in time."""
        nodes = {n: a for n, a in self.front.addresses.items() if n.startswith("node-")}
        self.status_poller.reports.clear()
        self.status_poller.addresses.update(nodes)
        self.status_poller.ask()
        deadline = monotonic() + START_TIMEOUT_S
        while len(self.status_poller.reports) < len(nodes) and monotonic() < deadline:
            self.runtime.step(wait_s=0.05)
        totals: Counter[str] = Counter()
        for report in self.status_poller.reports.values():
            totals.update(dict(report.figures))
        return dict(totals)

    def close(self) -> None:
        """Stop the cluster and remove its files. Idempotent."""
        self.cluster.stop(wait_s=0.0)
        self.runtime.close(linger_ms=0)
        shutil.rmtree(self.directory, ignore_errors=True)


class ArrivalConsumer:
    """Consumer that appends the arrivals of outputs to `arrivals`.

    It keeps the last bundle of each barrier in memory. `numbers`: document id -> its number.
    """

    def __init__(self, numbers: dict[str, int], arrivals: list[Arrival]) -> None:
        self._numbers, self._arrivals = numbers, arrivals
        self._last: dict[str, LastStored] = {}

    def deliver(self, bundle: Bundle) -> None:
        """Add an arrival for each document in a bundle, then store it as the last bundle."""
        for document, words in words_by_document(bundle):
            self._arrivals.append((self._numbers[document], words, perf_counter()))
        self._last[bundle.barrier] = LastStored(bundle.t_last, bundle.checksum, bundle.blobs)

    def last(self, barrier: str, groups: tuple[int, int]) -> LastStored:
        """Return the last bundle of a barrier."""
        return self._last.get(barrier, NO_BUNDLE)

    def close(self) -> None:
        """Do nothing, since there are no resources to release."""


class DurableEngine(Engine):
    """A running cluster with an input log and a consumer process that writes JSON lines."""

    def open_source(self) -> RetainedSource:
        """Open the source of the front with its input log, and the socket for consumer reports."""
        self._log = InputLog(self.sockets / "input-0", FLOW)
        source = DurableFirstSource if self.policy.output is Output.AT_ONCE else ReceivedSource
        self._received_source = source(self._log, lambda: time_ns() // 1000)
        self._writer = _LogWriter(self._received_source, name="intake")
        self._sent_count = 0
        self._context: Context = zmq.Context()
        self._reports = inbox(self._context, self.sockets, "arrivals")
        self._process: subprocess.Popen[bytes] | None = None
        return self._received_source

    def add_consumer(self) -> None:
        """Add the log writer to the runtime, whose loop then also waits for consumer reports."""
        self.runtime.add_with_input(
            self._writer, self._reports, self._receive_reports, execute_job=self._log.execute_job
        )

    def put(self, record: object) -> None:
        """Put a record into the source; start a write to the log unless one is in progress."""
        self._sent_count += 1
        receipt = self._received_source.receive(PRODUCER, self._sent_count, record)
        assert receipt is Receipt.ACCEPTED, receipt
        self._writer.turn()
        self.runtime.flush(self._writer)

    def start(self) -> None:
        """Start the consumer, then the cluster. Raises Unavailable."""
        module = "driftline.bench.systems.engine_consumer"
        self._process = start_module(module, (self.sockets, FLOW))
        deadline = monotonic() + START_TIMEOUT_S
        while not self._reports.poll(100):
            if monotonic() > deadline or self._process.poll() is not None:
                raise Unavailable("the consumer process did not start; see its messages above")
        assert self._reports.recv() == READY
        super().start()

    def close(self) -> None:
        """Stop the cluster and the consumer, and remove all files."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        super().close()
        self._context.destroy(linger=0)
        self._log.close()

    def _receive_reports(self) -> None:
        while self._reports.poll(0):
            for document, words, durable_at in unpack_stored(self._reports.recv()):
                self.arrivals.append((self.numbers[document], words, durable_at))


class DurableFirstSource(ReceivedSource):
    """Source that yields a record only once the record is durable in the log.

    Policies that release outputs at once need it: otherwise an output could leave before its input
    is durable.
    """

    _withheld_time: int | None = None
    """Time of the record that `read` withholds until it is durable; None if there is none."""

    def read(self, start: int) -> Iterator[tuple[int, object] | BadRecord | None]:
        for record in self.entries(start):
            while isinstance(record, tuple) and record[0] >= self.durable:
                self._withheld_time = record[0]
                yield None
            self._withheld_time = None
            yield record

    def advance_to(self, time: int) -> int:
        advanced = super().advance_to(time)
        # Do not advance beyond a withheld record.
        return advanced if self._withheld_time is None else min(advanced, self._withheld_time)


class _LogWriter(Receiver):
    """Receiver that writes groups of records to the log.

    `DurableEngine.put` adds the records to the source, so no process sends messages to this role.
    """

    def handle(self, sender: str, message: Message) -> None:
        raise MalformedMessage(f"{type(message).__name__} is not for the writer of a log")

    def channel_lost(self, sender: str) -> None:
        """Do nothing, since this role has no channels."""
