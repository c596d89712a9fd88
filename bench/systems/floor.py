"""The floor: the benchmark's job without any guarantees, as fast as Python does it.

The difference between an engine's figures and these is the cost of the engine. This process is the
producer and the consumer, as in every other run of the benchmark; the workers are other processes
(`floor_worker`), and all communicate by ZeroMQ over Unix sockets:

    producer --(id, text)--> worker k mod n --share per worker--> owner --changes--> consumer

A document is one message, each of its shares another, the changes of each share another. Nothing is
stored, acknowledged or ordered. With durable ends (`durable_floor`), documents and changes are
stored, and nothing else.
"""

import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import monotonic, perf_counter
from typing import cast

import msgpack
import zmq

from driftline.bench.measuring.corpus import Documents
from driftline.bench.measuring.meter import Arrival
from driftline.bench.systems.floor_worker import Positions, decode
from driftline.bench.systems.running import Running, start_module
from driftline.bench.systems.sockets import READY, address, open_socket
from driftline.engine.errors import Unavailable

Changes = tuple[str, Sequence[str], Sequence[Positions], Sequence[int]]
"""(document, words, positions per word, new number of documents per word)"""

START_S = 20.0
"""Seconds that workers may take to start."""

READ_AT_ONCE = 64
"""Messages that the consumer reads before the loop checks the clock."""


class Floor(Running):
    """The running workers, with their producer and their consumer."""

    def __init__(self, documents: Documents, workers: int = 2) -> None:
        self.documents = documents
        self.workers = workers
        self.numbers = {document: number for number, (document, _) in enumerate(documents)}
        """Id -> number of a document."""
        self._pack = msgpack.Packer(autoreset=True).pack
        self._directory = tempfile.TemporaryDirectory(prefix="floor-")
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._processes: list[subprocess.Popen[bytes]] = []
        self._inboxes: list[zmq.Socket[bytes]] = []
        self.inbox = open_socket(self._context, zmq.PULL)
        """Where the loop hears of outputs."""

    def start(self) -> None:
        """Start the workers. Raises Unavailable if they have not started within START_S."""
        directory = self.directory
        self.open_inbox(directory)
        for number in range(self.workers):
            arguments = (directory, number, self.workers)
            self.start_process("driftline.bench.systems.floor_worker", *arguments)
            inbox = open_socket(self._context, zmq.PUSH)
            inbox.connect(address(directory, f"worker{number}"))
            self._inboxes.append(inbox)
        self._await_ready()

    @property
    def directory(self) -> Path:
        """Where the sockets are, and all files."""
        return Path(self._directory.name)

    def open_inbox(self, directory: Path) -> None:
        """Be the consumer of the workers."""
        self.inbox.bind(address(directory, "results"))

    def _await_ready(self) -> None:
        deadline = monotonic() + START_S
        ready = 0
        while ready < self.workers:
            if monotonic() > deadline or any(p.poll() is not None for p in self._processes):
                raise Unavailable(
                    f"only {ready} of {self.workers} workers of the floor have started "
                    f"(within {START_S:.0f} s); their own messages are above"
                )
            if self.inbox.poll(100):
                assert self.inbox.recv() == READY
                ready += 1

    def send(self, number: int) -> None:
        """Hand over a document."""
        self.hand_over(number, self.packed(number))

    def packed(self, number: int) -> bytes:
        """A document as a message."""
        return cast(bytes, self._pack(self.documents[number]))

    def hand_over(self, number: int, message: bytes) -> None:
        """Send a document to its worker."""
        self._inboxes[number % self.workers].send(message)

    def start_process(self, module: str, *arguments: object) -> None:
        """Start a process that ends with the system."""
        self._processes.append(start_module(module, arguments))

    def receive(self) -> list[Arrival]:
        """The outputs that have arrived, for the meter."""
        numbers = self.numbers
        return [
            (numbers[document], words, perf_counter()) for document, words, _, _ in self.changes()
        ]

    def changes(self) -> Iterator[Changes]:
        """The changes that have arrived, decoded; at most READ_AT_ONCE messages."""
        receive = self.inbox.recv
        try:
            for _ in range(READ_AT_ONCE):
                yield cast(Changes, decode(receive(zmq.NOBLOCK)))
        except zmq.Again:
            pass

    def wait(self, timeout_ms: int) -> None:
        """Sleep until a message has arrived, but no longer than `timeout_ms`."""
        self.inbox.poll(timeout_ms)

    def close(self) -> None:
        """End the workers and remove their files. May be called any number of times."""
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.wait()
        self._context.destroy(linger=0)
        self._directory.cleanup()
