"""Sockets between this process and the workers of a measured system: unbounded queues.

No socket ever holds a message back: only the loop may bound the documents under way.
"""

from pathlib import Path

import zmq

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
