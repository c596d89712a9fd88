"""The floor: the benchmark's job with no guarantees at all, as fast as this language does it.

Whatever an engine adds to these figures is what the engine costs. The producer and the consumer
are this process, as in every other run of the benchmark; the workers are processes of their own
(`bench.floor_worker`), and all of them talk by ZeroMQ over Unix sockets:

    producer --(id, text)--> worker k mod n --share per worker--> owner --changes--> consumer

A document is one message, each share of it one more, the changes of each share one more.
Nothing is stored, nothing acknowledged, nothing ordered.
"""

import re
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import monotonic, perf_counter
from typing import cast

import msgpack
import zmq

from driftline.bench.floor_worker import READY, Positions, address, decode
from driftline.bench.meter import (
    Arrival,
    LatencyResult,
    Meter,
    ThroughputResult,
    closed_loop,
    open_loop,
    poisson_schedule,
)
from driftline.bench.running import Running, start_module
from driftline.engine.errors import Unavailable

Documents = Sequence[tuple[str, str]]
"""(id, text) each; no id twice."""

Changes = tuple[str, Sequence[str], Sequence[Positions], Sequence[int]]
"""Document, words, positions of each, new number of documents of each."""

START_S = 20.0
"""How long workers may take to start."""

READ_AT_ONCE = 64
"""Messages that the consumer reads before it looks at the clock again."""


def run_floor_latency(
    documents: Documents, rate: float, warmup: int, workers: int = 2, seed: int = 0
) -> LatencyResult:
    """Open loop: Poisson arrivals at `rate` documents a second."""
    meter = Meter(expected_records(documents), warmup)
    with Floor(documents, workers) as floor:
        return open_loop(floor, meter, poisson_schedule(len(documents), rate, seed))


def run_floor_throughput(
    documents: Documents, workers: int = 2, window: int = 512
) -> ThroughputResult:
    """Closed loop: as fast as it goes with at most `window` documents under way."""
    meter = Meter(expected_records(documents))
    with Floor(documents, workers) as floor:
        return closed_loop(floor, meter, window)


def expected_records(documents: Documents) -> list[int]:
    """How many changes each document makes: one for each distinct word."""
    find_words = re.compile(r"\w+").findall
    return [len(set(find_words(text.lower()))) for _, text in documents]


class Floor(Running):
    """The running workers, with the producer's and the consumer's ends."""

    def __init__(self, documents: Documents, workers: int = 2) -> None:
        self.documents = documents
        self.workers = workers
        self._numbers = {document: number for number, (document, _) in enumerate(documents)}
        self._pack = msgpack.Packer(autoreset=True).pack
        self._directory = tempfile.TemporaryDirectory(prefix="floor-")
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._processes: list[subprocess.Popen[bytes]] = []
        self._inboxes: list[zmq.Socket[bytes]] = []
        self._results = self._socket(zmq.PULL)

    def start(self) -> None:
        """Start the workers."""
        directory = Path(self._directory.name)
        self._results.bind(address(directory, "results"))
        for number in range(self.workers):
            arguments = (directory, number, self.workers)
            self._processes.append(start_module("driftline.bench.floor_worker", arguments))
            inbox = self._socket(zmq.PUSH)
            inbox.connect(address(directory, f"worker{number}"))
            self._inboxes.append(inbox)
        self._await_ready()

    def _socket(self, kind: int) -> zmq.Socket[bytes]:
        socket = self._context.socket(kind)
        socket.set_hwm(0)  # the meter bounds what is under way, or means not to
        socket.linger = 0
        socket.reconnect_ivl = 5  # ms; workers open their inboxes after we connect
        return socket

    def _await_ready(self) -> None:
        deadline = monotonic() + START_S
        ready = 0
        while ready < self.workers:
            if monotonic() > deadline or any(p.poll() is not None for p in self._processes):
                raise Unavailable(
                    f"only {ready} of {self.workers} workers of the floor have started "
                    f"(within {START_S:.0f} s); their own messages are above"
                )
            if self._results.poll(100):
                assert self._results.recv() == READY
                ready += 1

    def send(self, number: int) -> None:
        """Hand over a document."""
        self._inboxes[number % self.workers].send(self._pack(self.documents[number]))

    def receive(self) -> list[Arrival]:
        """What has arrived, as the meter wants it."""
        numbers = self._numbers
        return [
            (numbers[document], words, perf_counter()) for document, words, _, _ in self.changes()
        ]

    def changes(self) -> Iterator[Changes]:
        """What has arrived, decoded one by one; at most READ_AT_ONCE messages."""
        receive = self._results.recv
        try:
            for _ in range(READ_AT_ONCE):
                yield cast(Changes, decode(receive(zmq.NOBLOCK)))
        except zmq.Again:
            pass

    def wait(self, timeout_ms: int) -> None:
        """Sleep until something has arrived."""
        self._results.poll(timeout_ms)

    def close(self) -> None:
        """End the workers and remove everything; any number of times."""
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.wait()
        self._context.destroy(linger=0)
        self._directory.cleanup()
