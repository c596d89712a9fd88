"""Processes of measured systems, and the sockets between them and the measuring process.

A process exits when the measuring process does: the generator `messages` then ends, and a process
without an inbox sees the end of its standard input.
Sockets have no back-pressure: only the loop (`measuring.loops`) may bound the documents in flight.

A consumer in a separate process reports which outputs it has made durable, and when. Timestamps of
all processes are comparable: `perf_counter` is the system's monotonic clock.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Self, cast

import msgpack
import zmq

from driftline.deploy.runtime.supervision import child

ORPHAN_CHECK_MS = 1000
"""How long a process waits for a message before it checks that its parent is alive."""

READY = b""
"""First message of a process, sent once its inbox is open."""

StoredOutputs = Sequence[tuple[str, Sequence[object], float]]
"""(document id, keys (words) of outputs, `perf_counter` time when these were durable) triples; an
id may occur several times."""

RECONNECT_MS = 5
"""Reconnect interval in ms; short, because some senders connect before the inbox is open."""

Context = zmq.Context[zmq.Socket[bytes]]


class StartedProcesses:
    """Base of context managers of processes.

    Entry calls `start`. Exit calls `close`; so does entry if `start` raises.
    """

    def start(self) -> None:
        """Start everything. Raises Unavailable."""
        raise NotImplementedError

    def close(self) -> None:
        """Stop all processes and remove all files. Idempotent."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def start_module(
    module: str, arguments: Sequence[object], *, stdin: int | None = None
) -> subprocess.Popen[bytes]:
    """Start a process that runs a module of Driftline."""
    return subprocess.Popen(
        child.command(module, *arguments),
        env={**child.environment(), "PYTHONWARNINGS": "ignore"},
        stdin=stdin,
    )


def address(directory: Path, name: str) -> str:
    """Return the address of the inbox `name`, such as "worker0" or "results"."""
    return f"ipc://{directory / name}"


def inbox(context: Context, directory: Path, name: str) -> zmq.Socket[bytes]:
    """Open a socket for messages to `name`; a receive times out after ORPHAN_CHECK_MS."""
    socket = open_socket(context, zmq.PULL)
    socket.rcvtimeo = ORPHAN_CHECK_MS
    socket.bind(address(directory, name))
    return socket


def outbox(context: Context, directory: Path, name: str) -> zmq.Socket[bytes]:
    """Open a socket for messages to `name`, whose inbox may be opened later."""
    socket = open_socket(context, zmq.PUSH)
    socket.connect(address(directory, name))
    return socket


def open_socket(context: Context, kind: int) -> zmq.Socket[bytes]:
    """Open a socket with an unbounded queue; closing the socket drops the queue."""
    socket = context.socket(kind)
    socket.set_hwm(0)
    socket.linger = 0
    socket.reconnect_ivl = RECONNECT_MS
    return socket


def messages(socket: zmq.Socket[bytes]) -> Iterator[bytes]:
    """Yield received messages until the parent process exits. `socket`: opened by `inbox`."""
    parent = os.getppid()
    receive = socket.recv
    while True:
        try:
            message = receive()
        except zmq.Again:
            if os.getppid() != parent:
                return
            continue
        yield message


def pack_stored(stored: StoredOutputs) -> bytes:
    """Encode a consumer's report of durable outputs."""
    return cast(bytes, msgpack.packb(stored))


def unpack_stored(message: bytes) -> StoredOutputs:
    """Decode the result of `pack_stored`."""
    return cast(StoredOutputs, msgpack.unpackb(message))
