"""Sockets of ZeroMQ in an asyncio loop: a function takes each message as soon as it is there.

The loop watches the descriptor of a socket, which tells of changes only: so messages are taken
until there are none, also after each sending. Unlike with `zmq.asyncio`, no future and no task
stand between a message and who takes it.

Takes: bytes to send. Gives: the parts of each message, in their order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import zmq

DRAIN = 64
"""Messages that are taken at a time, before others in the loop have their turn."""

Take = Callable[[list[bytes]], None]


class LoopSocket:
    """A socket whose messages `take` gets; it is made, used and closed in one loop."""

    def __init__(self, socket: zmq.Socket[bytes], take: Take) -> None:
        self.socket = socket
        self._take = take
        self._loop = asyncio.get_running_loop()
        self._descriptor = socket.fileno()
        self._is_due = False
        self._loop.add_reader(self._descriptor, self._drain)
        self._look()

    def send(self, data: bytes) -> None:
        """Send a message. Precondition: the socket has no limit of messages that wait."""
        self.socket.send(data, zmq.NOBLOCK)
        self._look()

    def close(self) -> None:
        """Send and take nothing more."""
        self._loop.remove_reader(self._descriptor)
        self.socket.close(linger=0)

    def _look(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._drain)

    def _drain(self) -> None:
        self._is_due, more = False, True
        try:
            for _ in range(DRAIN):
                if more := not self.socket.closed:
                    self._take(self.socket.recv_multipart(zmq.NOBLOCK))
        except zmq.Again:
            more = False
        finally:  # whatever a message has done, others wait
            if more:
                self._look()


def dealer(context: zmq.Context[zmq.Socket[bytes]]) -> zmq.Socket[bytes]:
    """A socket that is going to be connected to whatever process listens at an address."""
    socket = context.socket(zmq.DEALER)
    socket.set_hwm(0)  # what waits is bounded by who sends
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.RECONNECT_IVL, 20)
    return socket
