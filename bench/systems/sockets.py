"""Sockets between this process and the workers of what is measured: queues without an end.

Nothing of the benchmark is ever kept back by a socket: the meter bounds what is under way, or
means not to.
"""

from pathlib import Path

import zmq

RECONNECT_MS = 5
"""Soon: some inboxes are opened after those who send to them have connected."""


def address(directory: Path, name: str) -> str:
    """Where the inbox of a worker (`worker0`) or of the consumer (`results`) is."""
    return f"ipc://{directory / name}"


def open_socket(context: "zmq.Context[zmq.Socket[bytes]]", kind: int) -> "zmq.Socket[bytes]":
    """A socket that takes whatever it is given, and forgets it when it is closed."""
    socket = context.socket(kind)
    socket.set_hwm(0)
    socket.linger = 0
    socket.reconnect_ivl = RECONNECT_MS
    return socket
