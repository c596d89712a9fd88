"""The baseline of the benchmark of windows: sums by key and minute in a plain loop, in processes.

Each process reads every n-th line of the same file of JSON lines, hashes the key, sends the records
of other processes to them in batches, and adds its own to a dict. There are no outputs before the
end, no acknowledgements, order, time or storage.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections import Counter
from itertools import islice
from pathlib import Path
from time import monotonic, perf_counter
from typing import cast
from zlib import crc32

import msgpack
import zmq

from driftline.bench.measuring.loops import cpu_seconds
from driftline.bench.systems.processes import (
    READY,
    Context,
    address,
    inbox,
    messages,
    open_socket,
    outbox,
    start_module,
)
from driftline.engine.errors import Unavailable

BATCH = 500
"""Records of a message to another process."""

START_S = 20.0
"""Timeout in seconds for the start of the processes."""

TIMEOUT_MS = 600_000
"""Timeout for the loop itself."""

END = b"end"
"""Message of a process that has sent all records."""

Sums = Counter[tuple[str, int]]


def run_loop(file: Path, processes: int) -> tuple[float, float, Sums]:
    """Sum the records of a file.

    Return the seconds that it took, the CPU seconds, and the sums. The start of the processes does
    not count. Raises Unavailable after START_S.
    """
    with tempfile.TemporaryDirectory(prefix="loop-") as name:
        directory = Path(name)
        context: Context = zmq.Context()
        results = inbox(context, directory, "results")
        arguments = [(file, directory, number, processes) for number in range(processes)]
        started = [start_module("driftline.bench.systems.bare_loop", each) for each in arguments]
        try:
            deadline = monotonic() + START_S
            for _ in started:
                if not results.poll(max(0, int(1000 * (deadline - monotonic())))):
                    raise Unavailable("the processes of the bare loop did not start")
                assert results.recv() == READY
            inboxes = [outbox(context, directory, f"loop{number}") for number in range(processes)]
            cpu, began = cpu_seconds(), perf_counter()
            for each in inboxes:
                each.send(READY)
            sums: Sums = Counter()
            results.rcvtimeo = TIMEOUT_MS
            parts = [results.recv() for _ in started]
            seconds, cpu = perf_counter() - began, cpu_seconds() - cpu
            for part in parts:
                for key, minute, total in msgpack.unpackb(part):
                    sums[key, minute] += total
            return seconds, cpu, sums
        finally:
            for process in started:
                process.kill()
                process.wait()
            context.destroy(linger=0)


class LoopProcess:
    """Process `number` of the loop."""

    def __init__(self, directory: Path, number: int, processes: int) -> None:
        context: Context = zmq.Context()
        self.number = number
        self.inbox = inbox(context, directory, f"loop{number}")
        self.results = outbox(context, directory, "results")
        self.others = [open_socket(context, zmq.PUSH) for _ in range(processes)]
        for other, socket in enumerate(self.others):
            socket.connect(address(directory, f"loop{other}"))
        self.results.send(READY)
        self.ended = 0
        """Processes that have sent all their records."""
        self.sums: dict[tuple[str, int], int] = {}

    def run(self, file: Path) -> None:
        """Wait for the start, sum up, and send the sums."""
        waiting = messages(self.inbox)
        early = list(iter(lambda: next(waiting), READY))  # other processes may start sooner
        for message in early:
            self.add(message)
        processes, number = len(self.others), self.number
        batches: list[list[tuple[str, float, int]]] = [[] for _ in range(processes)]
        sums, loads = self.sums, json.loads
        with file.open("rb") as lines:
            for line in islice(lines, number, None, processes):
                record = loads(line)
                key = record["key"]
                owner = crc32(key.encode()) % processes
                if owner == number:
                    place = key, int(record["at"] // 60)
                    sums[place] = sums.get(place, 0) + record["value"]
                    continue
                batch = batches[owner]
                batch.append((key, record["at"], record["value"]))
                if len(batch) == BATCH:
                    self.others[owner].send(msgpack.packb(batch))
                    batch.clear()
                    while self.inbox.poll(0):
                        self.add(self.inbox.recv())
        for socket, batch in zip(self.others, batches, strict=True):
            socket.send(msgpack.packb(batch))
            socket.send(END)
        while self.ended < processes:
            self.add(next(waiting))
        self.results.send(cast(bytes, msgpack.packb([(*key, n) for key, n in sums.items()])))
        next(waiting, None)  # the parent kills this process

    def add(self, message: bytes) -> None:
        """Add the records of a message."""
        if message == END:
            self.ended += 1
            return
        sums = self.sums
        for key, at, value in msgpack.unpackb(message):
            place = key, int(at // 60)
            sums[place] = sums.get(place, 0) + value


if __name__ == "__main__":
    path, inboxes, *numbers = sys.argv[1:]
    LoopProcess(Path(inboxes), *map(int, numbers)).run(Path(path))
