"""The floor: the benchmark's job without any guarantees, as fast as Python can do it.

The difference between the figures of an engine and of the floor is the cost of the engine. The
*ends* of the job are its producer and its consumer. They keep data in memory, or write it to files
(*durable ends*). The measuring process is the producer, and with ends in memory also the consumer.
The workers, and with durable ends the consumer, are separate processes (`floor_processes`). All
communicate by ZeroMQ over Unix sockets:

    producer --(id, text)--> worker k mod n --share per worker--> owner --changes--> consumer

The job builds an inverted index. Document k goes to worker k mod n. Each word has one owner, a
worker. A *share* is the words of a document that have the same owner. Each document, each share
sent to another worker, and the changes of each share are one message. The floor has no storage,
acknowledgements or ordering. With durable ends, it stores only documents and changes.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from queue import Empty, SimpleQueue
from time import monotonic, perf_counter
from typing import cast

import msgpack
import zmq

from driftline.bench.measuring.corpus import Documents
from driftline.bench.measuring.meter import Arrival
from driftline.bench.systems.floor_processes import Positions, decode
from driftline.bench.systems.processes import (
    READY,
    Context,
    StartedProcesses,
    address,
    open_socket,
    outbox,
    start_module,
    unpack_stored,
)
from driftline.engine.errors import Unavailable

Changes = tuple[str, Sequence[str], Sequence[Positions], Sequence[int]]
"""(document, words, positions per word, new number of documents per word)."""

START_TIMEOUT_S = 20.0
"""Timeout for the start of the workers."""

MESSAGES_AT_ONCE = 64
"""Messages that the consumer reads before the loop checks the clock."""


class MemoryFloor(StartedProcesses):
    """The floor with its ends in memory: worker processes, producer and consumer."""

    def __init__(self, documents: Documents, workers: int = 2) -> None:
        self.documents = documents
        self.workers = workers
        self.numbers = {document: number for number, (document, _) in enumerate(documents)}
        """Id -> number of a document."""
        self._pack = msgpack.Packer(autoreset=True).pack
        self._directory = tempfile.TemporaryDirectory(prefix="floor-")
        self.directory = Path(self._directory.name)
        """Directory of the sockets and all files."""
        self._context: Context = zmq.Context()
        self._processes: list[subprocess.Popen[bytes]] = []
        self._worker_outboxes: list[zmq.Socket[bytes]] = []
        self.inbox = open_socket(self._context, zmq.PULL)
        """Socket on which outputs arrive."""

    def start(self) -> None:
        """Start the workers. Raises Unavailable after START_TIMEOUT_S."""
        self.open_inbox()
        for number in range(self.workers):
            self.start_process("worker", number, self.workers)
            self._worker_outboxes.append(outbox(self._context, self.directory, f"worker{number}"))
        deadline = monotonic() + START_TIMEOUT_S
        ready = 0
        while ready < self.workers:
            if monotonic() > deadline or any(p.poll() is not None for p in self._processes):
                raise Unavailable(
                    f"only {ready} of {self.workers} workers of the floor have started "
                    f"(within {START_TIMEOUT_S:.0f} s); see their messages above"
                )
            if self.inbox.poll(100):
                assert self.inbox.recv() == READY
                ready += 1

    def open_inbox(self) -> None:
        """Bind the inbox at the address to which the workers send their changes."""
        self.inbox.bind(address(self.directory, "results"))

    def send(self, number: int) -> None:
        """Send document `number` to its worker."""
        self.send_packed(number, self.pack_document(number))

    def pack_document(self, number: int) -> bytes:
        """Encode document `number` as a message."""
        return cast(bytes, self._pack(self.documents[number]))

    def send_packed(self, number: int, message: bytes) -> None:
        """Send the message of document `number` to its worker."""
        self._worker_outboxes[number % self.workers].send(message)

    def start_process(self, kind: str, *arguments: object) -> None:
        """Start a worker or consumer process; `close` kills it."""
        module = "driftline.bench.systems.floor_processes"
        self._processes.append(start_module(module, (kind, self.directory, *arguments)))

    def receive(self) -> list[Arrival]:
        """Return the outputs that have arrived, for the meter."""
        numbers = self.numbers
        return [
            (numbers[document], words, perf_counter()) for document, words, _, _ in self.changes()
        ]

    def changes(self) -> Iterator[Changes]:
        """Yield the changes that have arrived, decoded; at most MESSAGES_AT_ONCE messages."""
        receive = self.inbox.recv
        try:
            for _ in range(MESSAGES_AT_ONCE):
                yield cast(Changes, decode(receive(zmq.NOBLOCK)))
        except zmq.Again:
            pass

    def wait(self, timeout_ms: int) -> None:
        """Sleep until a message arrives, at most `timeout_ms`."""
        self.inbox.poll(timeout_ms)

    def close(self) -> None:
        """Stop the workers and remove their files. Idempotent."""
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.wait()
        self._context.destroy(linger=0)
        self._directory.cleanup()


class DurableFloor(MemoryFloor):
    """The floor with durable ends: documents and changes are written to files.

        producer --> file, then worker --> owner --> consumer: file, then the meter

    A thread of the producer, the writer, appends the documents to a file and sends them once they
    are on disk. Documents that arrive meanwhile form the next group, as in Driftline's input log.
    The consumer is a separate process, like that of `DurableEngine`, and appends changes likewise.
    """

    def __init__(self, documents: Documents, workers: int = 2) -> None:
        super().__init__(documents, workers)
        self._tasks: SimpleQueue[tuple[int, bytes] | None] = SimpleQueue()
        """(number, message) of documents for the writer; None ends it."""
        self._writer = threading.Thread(target=self._write, daemon=True)

    def open_inbox(self) -> None:
        """Start the consumer process, which reports durable outputs to the inbox."""
        self.inbox.bind(address(self.directory, "arrivals"))
        self.start_process("consumer")

    def start(self) -> None:
        """Start all processes and the writer. Raises Unavailable."""
        super().start()
        self._writer.start()

    def send(self, number: int) -> None:
        """Queue document `number`; the writer sends it to its worker once it is durable."""
        self._tasks.put((number, self.pack_document(number)))

    def receive(self) -> list[Arrival]:
        """Return the outputs that have become durable."""
        numbers, arrivals = self.numbers, []
        while self.inbox.poll(0):
            for document, words, durable_at in unpack_stored(self.inbox.recv()):
                arrivals.append((numbers[document], words, durable_at))
        return arrivals

    def close(self) -> None:
        """Stop the writer and all processes. Idempotent."""
        self._tasks.put(None)
        if self._writer.is_alive():
            self._writer.join(timeout=10)
        super().close()

    def _write(self) -> None:
        """Store and send documents; only this thread uses the sockets to the workers."""
        file = os.open(self.directory / "documents", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            while group := self._next_group():
                os.write(file, b"".join([message for _, message in group]))
                os.fdatasync(file)
                for number, message in group:
                    self.send_packed(number, message)
        except zmq.ZMQError:
            pass  # `close` destroyed the sockets
        finally:
            os.close(file)

    def _next_group(self) -> list[tuple[int, bytes]]:
        """Wait for a document, and return all queued documents; an empty list ends the writer."""
        group: list[tuple[int, bytes]] = []
        task = self._tasks.get()
        try:
            while task is not None:
                group.append(task)
                task = self._tasks.get_nowait()
        except Empty:
            return group
        self._tasks.put(None)  # end after this group
        return group
