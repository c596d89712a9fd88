"""The intake's socket: carries messages of producers, and answers, over a ZeroMQ ROUTER.

A message has one part, and before it the route to its producer, which the ROUTER adds and removes.
"""

from __future__ import annotations

import logging

import zmq

from driftline.deploy.parties.intake import MESSAGE_BYTES_MAX, Intake
from driftline.deploy.parties.receiver import WINDOW, WINDOW_BYTES
from driftline.engine.errors import Unavailable
from driftline.engine.sources.logs.received import ReceivedSource

log = logging.getLogger("driftline")

QUEUED_MAX = 256
"""Messages of each producer that may wait in ZeroMQ's memory, besides the intake's window."""

DRAIN = 64
"""Messages that a turn takes at most."""


class IntakeSocket(Intake):
    """An intake that producers reach. Raises Unavailable if the address is taken."""

    def __init__(
        self,
        source: ReceivedSource,
        address: str,
        *,
        name: str = "intake",
        window: int = WINDOW,
        window_bytes: int = WINDOW_BYTES,
    ) -> None:
        super().__init__(source, name=name, window=window, window_bytes=window_bytes)
        port = address.rpartition(":")[2]
        is_port = port == "*" or (port.isdecimal() and int(port) < 1 << 16)
        if address.startswith("tcp:") and not is_port:
            raise Unavailable(
                f"producers cannot be heard on {address}: it has to end with a port from 0 to 65535"
            )
        self._context = zmq.Context()
        self.socket = self._context.socket(zmq.ROUTER)
        self.socket.set_hwm(QUEUED_MAX)
        self.socket.setsockopt(zmq.MAXMSGSIZE, MESSAGE_BYTES_MAX)
        try:
            self.socket.bind(address)
        except zmq.ZMQError as error:
            self._context.destroy(linger=0)
            raise Unavailable(
                f"producers cannot be heard on {address}: {error.strerror}; "
                "is it in use by another run?"
            ) from None
        self.address = self.socket.getsockopt_string(zmq.LAST_ENDPOINT)

    def drain(self) -> None:
        """Take the messages that have come, as far as there is room."""
        try:
            for _ in range(DRAIN):
                if not self.room():
                    return
                self.take(self.socket.recv_multipart(zmq.NOBLOCK))
        except zmq.Again:
            pass

    def turn(self) -> bool:
        more = super().turn()
        self._send_answers()
        return more

    def close(self, linger_ms: int = 500) -> None:
        """Release the address."""
        self._context.destroy(linger=linger_ms)

    def _send_answers(self) -> None:
        """An answer that cannot be sent is dropped: its producer asks again."""
        for route, answer in self.answers:
            try:
                self.socket.send_multipart((route, answer), zmq.NOBLOCK)
            except zmq.ZMQError as error:
                log.debug("%s could not answer a producer: %s", self.name, error)
        self.answers.clear()
