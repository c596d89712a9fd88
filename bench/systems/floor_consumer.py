"""The durable consumer of the floor: appends what the workers send to a file, and tells of it.

Run by `bench.systems.durable_floor` as a process of its own, with argument DIRECTORY. Everything
that has come is one group, with one write and one fdatasync; meanwhile the next group gathers. A
group is decoded only when it is durable.
"""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path
from time import perf_counter

import zmq

from driftline.bench.systems.floor_worker import decode
from driftline.bench.systems.sockets import (
    ORPHAN_CHECK_MS,
    READY,
    Told,
    address,
    open_socket,
    pack_told,
)


class FloorConsumer:
    """The file, and the sockets around it."""

    def __init__(self, directory: Path) -> None:
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.results = open_socket(self.context, zmq.PULL)
        self.results.rcvtimeo = ORPHAN_CHECK_MS
        self.results.bind(address(directory, "results"))
        self.producer = open_socket(self.context, zmq.PUSH)
        self.producer.connect(address(directory, "arrivals"))
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        self.file = os.open(directory / "changes", flags, 0o644)

    def run(self) -> None:
        """Work until the parent process is gone, or kills this one."""
        parent = os.getppid()
        while True:
            try:
                group = [self.results.recv()]
            except zmq.Again:
                if os.getppid() != parent:
                    return
                continue
            while self.results.poll(0):
                group.append(self.results.recv())
            self._store(group)

    def _store(self, group: list[bytes]) -> None:
        for _ in range(group.count(READY)):  # of workers
            self.producer.send(READY)
        changes = [message for message in group if message != READY]
        if not changes:
            return
        os.write(self.file, b"".join(changes))
        os.fdatasync(self.file)
        now = perf_counter()
        told: Told = [(*_changes(message), now) for message in changes]
        self.producer.send(pack_told(told))


def _changes(message: bytes) -> tuple[str, tuple[str, ...]]:
    """(document, words) of a message of changes."""
    document, words, _, _ = decode(message)
    assert isinstance(document, str)
    assert isinstance(words, tuple)
    return document, words


def main() -> None:
    """Entry point of the process."""
    consumer = FloorConsumer(Path(sys.argv[1]))
    gc.freeze()
    gc.disable()  # this code makes no cycles
    consumer.run()


if __name__ == "__main__":
    main()
