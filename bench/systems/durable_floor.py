"""The floor with durable ends: no more than makes documents and changes durable.

    producer --> file, then worker --> owner --> consumer: file, then the meter

A thread appends the documents to a file and sends them once they are on the disk; those that come
meanwhile are the next group, as in Driftline's input log. The consumer (`floor_consumer`) is a
process of its own, as Driftline's is, and appends what has come in the same way.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from queue import Empty, SimpleQueue

import zmq

from driftline.bench.measuring.corpus import Documents
from driftline.bench.measuring.meter import Arrival
from driftline.bench.systems.floor import Floor
from driftline.bench.systems.sockets import address, unpack_told


class DurableFloor(Floor):
    """The running workers, with their producer, its writer, and the consumer."""

    def __init__(self, documents: Documents, workers: int = 2) -> None:
        super().__init__(documents, workers)
        self._tasks: SimpleQueue[tuple[int, bytes] | None] = SimpleQueue()
        self._writer = threading.Thread(target=self._write, daemon=True)

    def open_inbox(self, directory: Path) -> None:
        """Start the consumer, and hear what it has made durable."""
        self.inbox.bind(address(directory, "arrivals"))
        self.start_process("driftline.bench.systems.floor_consumer", directory)

    def start(self) -> None:
        """Start all. Raises Unavailable."""
        super().start()
        self._writer.start()

    def send(self, number: int) -> None:
        """Hand over a document: the writer sends it when it is durable."""
        self._tasks.put((number, self.packed(number)))

    def receive(self) -> list[Arrival]:
        """The outputs that have become durable."""
        numbers, arrivals = self.numbers, []
        while self.inbox.poll(0):
            for document, words, at in unpack_told(self.inbox.recv()):
                arrivals.append((numbers[document], words, at))
        return arrivals

    def close(self) -> None:
        """End all. May be called any number of times."""
        self._tasks.put(None)
        if self._writer.is_alive():
            self._writer.join(timeout=10)
        super().close()

    def _write(self) -> None:
        """The writer: only this thread uses the sockets to the workers."""
        file = os.open(self.directory / "documents", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            while group := self._next_group():
                os.write(file, b"".join([message for _, message in group]))
                os.fdatasync(file)
                for number, message in group:
                    self.hand_over(number, message)
        except zmq.ZMQError:
            pass  # the system was closed
        finally:
            os.close(file)

    def _next_group(self) -> list[tuple[int, bytes]]:
        """All documents that wait, at least one; none at the end."""
        group: list[tuple[int, bytes]] = []
        task = self._tasks.get()
        try:
            while task is not None:
                group.append(task)
                task = self._tasks.get_nowait()
        except Empty:
            return group
        self._tasks.put(None)  # the end comes after this group
        return group
