"""The ends of a measured Driftline: where its documents come from, and where its outputs go.

`MemoryEnds` has both in this process, and in memory. `DurableEnds` has what a run with producers
has: `ReceivedSource` and its input log at the front, and JSON lines at the consumer, which is a
process of its own (`engine_consumer`), so that writing takes no time of the producer.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from time import monotonic, perf_counter, time_ns
from typing import Protocol

import zmq

from driftline.bench.measuring.corpus import Documents
from driftline.bench.measuring.meter import Arrival
from driftline.bench.systems.consumers import PassingConsumer, words_by_document
from driftline.bench.systems.running import start_module
from driftline.bench.systems.sockets import READY, address, open_socket, unpack_told
from driftline.deploy.host.config import ProcessConfig
from driftline.deploy.host.loop.runtime import Runtime
from driftline.deploy.parties.consumer import ConsumerServer
from driftline.deploy.parties.receiver import Receiver
from driftline.engine.errors import MalformedMessage, Unavailable
from driftline.engine.policy import Output, Policy
from driftline.engine.sources import BadRecord, LiveSource, QueueSource
from driftline.engine.sources.logs.inputlog import InputLog
from driftline.engine.sources.logs.received import Receipt, ReceivedSource
from driftline.engine.wire.messages import Bundle, Message

START_S = 20.0
"""Seconds that the consumer may take to start."""

PRODUCER = "bench"


class Ends(Protocol):
    """Both ends of a run."""

    source: LiveSource
    arrivals: list[Arrival]
    """The outputs that have arrived and that the meter has not taken."""

    def attach(self, runtime: Runtime, config: ProcessConfig) -> None:
        """Take part in a runtime, whose first party is the front."""

    def put(self, record: object, runtime: Runtime) -> None:
        """Give a record to the source."""

    def start(self) -> None:
        """Start what is outside of this process. Raises Unavailable."""

    def close(self) -> None:
        """End it, and release all. May be called any number of times, after the runtime's end."""


class CountingConsumer(PassingConsumer):
    """Collects the arrivals of outputs for the meter."""

    def __init__(self, documents: Documents, arrivals: list[Arrival]) -> None:
        super().__init__()
        self.arrivals = arrivals
        self._numbers = {document: number for number, (document, _) in enumerate(documents)}

    def take(self, bundle: Bundle) -> None:
        """Add an arrival for each document in a bundle."""
        for document, words in words_by_document(bundle):
            self.arrivals.append((self._numbers[document], words, perf_counter()))


class MemoryEnds:
    """A queue, and a consumer that counts."""

    def __init__(self, documents: Documents) -> None:
        queue = QueueSource("documents")
        self.source: LiveSource = queue
        self.arrivals: list[Arrival] = []
        self._put = queue.put
        consumer = CountingConsumer(documents, self.arrivals)
        self._server = ConsumerServer(lambda barrier: consumer)

    def attach(self, runtime: Runtime, config: ProcessConfig) -> None:
        """Serve the nodes in this process."""
        runtime.add(self._server, config.inbox("consumer"))

    def put(self, record: object, runtime: Runtime) -> None:
        """Give a record to the source."""
        self._put(record)

    def start(self) -> None:
        """Do nothing: all is in this process."""

    def close(self) -> None:
        """Do nothing: there is nothing to release."""


class DurableEnds:
    """An input log, and a consumer process that writes JSON lines."""

    def __init__(self, documents: Documents, policy: Policy, directory: Path, flow: str) -> None:
        self.arrivals: list[Arrival] = []
        self._numbers = {document: number for number, (document, _) in enumerate(documents)}
        self._directory, self._flow = directory, flow
        self._log = InputLog(directory / "input-0", flow)
        kind = OnceDurable if policy.output is Output.AT_ONCE else ReceivedSource
        self._received = kind(self._log, lambda: time_ns() // 1000)
        self.source: LiveSource = self._received
        self._writer = _Writer(self._received, name="intake")
        self._sent = 0
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._told = open_socket(self._context, zmq.PULL)
        self._told.bind(address(directory, "arrivals"))
        self._process: subprocess.Popen[bytes] | None = None

    def attach(self, runtime: Runtime, config: ProcessConfig) -> None:
        """Write the log in the runtime's thread, and wake its loop when outputs are durable."""
        runtime.watch(self._writer, self._told, self._drain, lambda: True, self._log.carry_out)

    def put(self, record: object, runtime: Runtime) -> None:
        """Give a record to the source, and begin to write it unless a write is under way."""
        self._sent += 1
        receipt = self._received.receive(PRODUCER, self._sent, record)
        assert receipt is Receipt.TAKEN, receipt
        self._writer.turn()
        runtime.flush(self._writer)

    def start(self) -> None:
        """Start the consumer. Raises Unavailable."""
        self._process = start_module(
            "driftline.bench.systems.engine_consumer", (self._directory, self._flow)
        )
        deadline = monotonic() + START_S
        while not self._told.poll(100):
            if monotonic() > deadline or self._process.poll() is not None:
                raise Unavailable("the consumer did not start; its own messages are above")
        assert self._told.recv() == READY

    def close(self) -> None:
        """End the consumer and release the log."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._context.destroy(linger=0)
        self._log.close()

    def _drain(self) -> None:
        while self._told.poll(0):
            for document, words, at in unpack_told(self._told.recv()):
                self.arrivals.append((self._numbers[document], words, at))


class OnceDurable(ReceivedSource):
    """Gives a record only once the log has it.

    For policies whose outputs leave at once: nothing else would keep an output from leaving before
    its input is durable.
    """

    _held: int | None = None
    """The time of the record that the reader waits for."""

    def read(self, start: int) -> Iterator[tuple[int, object] | BadRecord | None]:
        for record in self.entries(start):
            while isinstance(record, tuple) and record[0] >= self.durable:
                self._held = record[0]
                yield None
            self._held = None
            yield record

    def move_to(self, time: int) -> int:
        moved = super().move_to(time)
        return moved if self._held is None else min(moved, self._held)


class _Writer(Receiver):
    """Has groups of records written to the log; the records come by `put`, not by messages."""

    def handle(self, sender: str, message: Message) -> None:
        raise MalformedMessage(f"{type(message).__name__} is not for the writer of a log")

    def channel_lost(self, sender: str) -> None:
        """Do nothing: there are no channels."""
