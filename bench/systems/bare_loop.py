"""Baseline of the windows benchmark: sums by key and minute in n processes, without an engine.

Each process reads every n-th line of the same file of JSON lines. The hash of a record's key
selects the process that owns the record. A process adds the records that it owns to a dict, and
sends the others to their owners in batches. There are no outputs before the end, no
acknowledgements, order, watermarks or storage.
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

START = b"start"
"""Message of the parent to each process: begin to read the file."""

BATCH = 500
"""Number of records in a message to another process."""

START_TIMEOUT_S = 20.0
"""Timeout in seconds for the start of the processes."""

LOOP_TIMEOUT_MS = 600_000
"""Timeout for the sums of a process."""

END = b"end"
"""Message of a process that has sent all records."""

Sums = Counter[tuple[str, int]]
"""(key, minute) -> sum of the values."""


def run_loop(file: Path, processes: int) -> tuple[float, float, Sums]:
    """Sum the records of a file. Return (elapsed seconds, CPU seconds, sums).

    The start of the processes does not count. Raises Unavailable if they have not started after
    START_TIMEOUT_S.
    """
    with tempfile.TemporaryDirectory(prefix="loop-") as name:
        directory = Path(name)
        context: Context = zmq.Context()
        results = inbox(context, directory, "results")
        arguments = [(file, directory, number, processes) for number in range(processes)]
        children = [start_module("driftline.bench.systems.bare_loop", each) for each in arguments]
        try:
            deadline = monotonic() + START_TIMEOUT_S
            for _ in children:
                if not results.poll(max(0, int(1000 * (deadline - monotonic())))):
                    raise Unavailable(
                        f"the processes of the bare loop did not start in {START_TIMEOUT_S:g} s; "
                        "see their messages above"
                    )
                assert results.recv() == READY
            outboxes = [outbox(context, directory, f"loop{number}") for number in range(processes)]
            cpu_s, start = cpu_seconds(), perf_counter()
            for each in outboxes:
                each.send(START)
            sums: Sums = Counter()
            results.rcvtimeo = LOOP_TIMEOUT_MS
            packed_sums = [results.recv() for _ in children]
            seconds, cpu_s = perf_counter() - start, cpu_seconds() - cpu_s
            for packed in packed_sums:
                for key, minute, total in msgpack.unpackb(packed):
                    sums[key, minute] += total
            return seconds, cpu_s, sums
        finally:
            for process in children:
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
        self.outboxes = [open_socket(context, zmq.PUSH) for _ in range(processes)]
        """For each process, this one included."""
        for owner, socket in enumerate(self.outboxes):
            socket.connect(address(directory, f"loop{owner}"))
        self.results.send(READY)
        self.ended_processes = 0
        """Processes that have sent all their records."""
        self.sums: dict[tuple[str, int], int] = {}
        """(key, minute) -> sum of the values."""

    def run(self, file: Path) -> None:
        """Wait for START, sum up, and send the sums."""
        incoming = messages(self.inbox)
        early = list(iter(lambda: next(incoming), START))  # other processes may start sooner
        for message in early:
            self.add(message)
        processes, number = len(self.outboxes), self.number
        batches: list[list[tuple[str, float, int]]] = [[] for _ in range(processes)]
        sums, loads = self.sums, json.loads
        with file.open("rb") as lines:
            for line in islice(lines, number, None, processes):
                record = loads(line)
                key = record["key"]
                owner = crc32(key.encode()) % processes
                if owner == number:
                    group = key, int(record["at"] // 60)
                    sums[group] = sums.get(group, 0) + record["value"]
                    continue
                batch = batches[owner]
                batch.append((key, record["at"], record["value"]))
                if len(batch) == BATCH:
                    self.outboxes[owner].send(msgpack.packb(batch))
                    batch.clear()
                    while self.inbox.poll(0):
                        self.add(self.inbox.recv())
        for socket, batch in zip(self.outboxes, batches, strict=True):
            socket.send(msgpack.packb(batch))
            socket.send(END)
        while self.ended_processes < processes:
            self.add(next(incoming))
        self.results.send(cast(bytes, msgpack.packb([(*group, n) for group, n in sums.items()])))
        # Wait until the parent kills this process: an exit would drop the sums that are being sent.
        next(incoming, None)

    def add(self, message: bytes) -> None:
        """Add the records of a message to the sums; count an END."""
        if message == END:
            self.ended_processes += 1
            return
        sums = self.sums
        for key, at, value in msgpack.unpackb(message):
            group = key, int(at // 60)
            sums[group] = sums.get(group, 0) + value


if __name__ == "__main__":
    file_name, directory_name, *numbers = sys.argv[1:]
    LoopProcess(Path(directory_name), *map(int, numbers)).run(Path(file_name))
