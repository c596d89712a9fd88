"""The processes of measured systems, and the sockets between them and the measuring process.

Processes always end with the measurement. No socket ever holds a message back: only the loop may
bound the documents under way.

A consumer in a process of its own reports what it has made durable, and when. Its clock is that of
the measuring process: `perf_counter` is the system's monotonic clock.
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
"""How long a process waits for a message before it checks that its parent is still there."""

READY = b""
"""First message of a process: its inbox is open."""

Stored = Sequence[tuple[str, Sequence[object], float]]
"""(document, words of its outputs, time at which they were durable), in seconds."""

RECONNECT_MS = 5
"""Short, as some inboxes are opened after their senders have connected."""

Context = zmq.Context[zmq.Socket[bytes]]


class StartedProcesses:
    """A context manager that starts on entry; it is closed also if starting fails."""

    def start(self) -> None:
        """Start everything. Raises Unavailable."""
        raise NotImplementedError

    def close(self) -> None:
        """End all processes and remove all files. May be called any number of times."""
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
    """Return the address of an inbox, such as that of a worker (`worker0`) or `results`."""
    return f"ipc://{directory / name}"


def inbox(context: Context, directory: Path, name: str) -> zmq.Socket[bytes]:
    """Open a socket for messages to `name`; receiving gives up after ORPHAN_CHECK_MS."""
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
    """Open a socket with an unbounded queue, which is dropped when the socket is closed."""
    socket = context.socket(kind)
    socket.set_hwm(0)
    socket.linger = 0
    socket.reconnect_ivl = RECONNECT_MS
    return socket


def messages(socket: zmq.Socket[bytes]) -> Iterator[bytes]:
    """Receive messages until the parent process is gone, or kills this one."""
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


def pack_stored(stored: Stored) -> bytes:
    """Encode what a consumer has made durable."""
    return cast(bytes, msgpack.packb(stored))


def unpack_stored(message: bytes) -> Stored:
    """Decode `pack_stored`."""
    return cast(Stored, msgpack.unpackb(message))
