"""Sockets between this process and the workers of a measured system: unbounded queues.

No socket ever holds a message back: only the loop may bound the documents under way.

A consumer that is a process of its own tells this one what it has made durable, and when. Its clock
is that of this process: `perf_counter` is the system's monotonic clock.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import cast

import msgpack
import zmq

ORPHAN_CHECK_MS = 1000
"""How long a worker waits for a message before it looks whether its parent is still there."""

READY = b""
"""First message of a worker: its inbox is open."""

Told = Sequence[tuple[str, Sequence[object], float]]
"""(document, words of its outputs, time at which they were durable), in seconds"""

RECONNECT_MS = 5
"""Short, as some inboxes are opened after their senders have connected."""


def address(directory: Path, name: str) -> str:
    """The address of the inbox of a worker (`worker0`) or of the consumer (`results`)."""
    return f"ipc://{directory / name}"


def open_socket(context: "zmq.Context[zmq.Socket[bytes]]", kind: int) -> "zmq.Socket[bytes]":
    """A socket with an unbounded queue, which is dropped when the socket is closed."""
    socket = context.socket(kind)
    socket.set_hwm(0)
    socket.linger = 0
    socket.reconnect_ivl = RECONNECT_MS
    return socket


def pack_told(told: Told) -> bytes:
    """What a consumer has made durable, as a message."""
    return cast(bytes, msgpack.packb(told))


def unpack_told(message: bytes) -> Told:
    """Decode `pack_told`."""
    return cast(Told, msgpack.unpackb(message))
