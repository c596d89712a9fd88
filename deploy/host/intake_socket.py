"""The intake's socket: carries messages of producers, and answers, over a ZeroMQ ROUTER.

A message has one part, and before it the route to its producer, which the ROUTER adds and removes.
Producers reach the ROUTER through a guard only (`deploy.host.guarding.guard`).
"""

from __future__ import annotations

from pathlib import Path

import zmq

from driftline.deploy.host.guarding.guard import CONNECTIONS_MAX, Guard
from driftline.deploy.parties.intake import MESSAGE_BYTES_MAX, Intake
from driftline.deploy.parties.receiver import WINDOW, WINDOW_BYTES
from driftline.engine.events import log
from driftline.engine.sources.logs.received import ReceivedSource

ANSWERS_MAX = 64
"""Answers to each producer that may wait in ZeroMQ's memory."""

DRAIN = 64
"""Messages that a turn takes at most."""


class IntakeSocket(Intake):
    """An intake that producers reach. Raises Unavailable if the address cannot be used."""

    def __init__(
        self,
        source: ReceivedSource,
        address: str,
        folder: Path,
        *,
        name: str = "intake",
        window: int = WINDOW,
        window_bytes: int = WINDOW_BYTES,
        connections_max: int = CONNECTIONS_MAX,
    ) -> None:
        """`folder`: where only this user makes files; the ROUTER's own address is there."""
        super().__init__(source, name=name, window=window, window_bytes=window_bytes)
        inside = str(folder / f"{name}.router")
        self._context = zmq.Context()
        self.socket = self._context.socket(zmq.ROUTER)
        self.socket.set(zmq.SNDHWM, ANSWERS_MAX)
        self.socket.set(zmq.RCVHWM, 0)  # the guard bounds what comes, see there
        self.socket.setsockopt(zmq.MAXMSGSIZE, MESSAGE_BYTES_MAX)
        self.socket.setsockopt(zmq.BACKLOG, 2 * connections_max)
        self.socket.bind(f"ipc://{inside}")
        try:
            self._guard = Guard(
                address,
                inside,
                name=name,
                message_bytes_max=MESSAGE_BYTES_MAX,
                connections_max=connections_max,
            )
        except BaseException:
            self._context.destroy(linger=0)
            raise
        self.address = self._guard.address

    def drain(self) -> None:
        """Take the messages that have come, as far as there is room."""
        try:
            for _ in range(DRAIN):
                if not self.room():
                    return
                parts = self.socket.recv_multipart(zmq.NOBLOCK)
                self._guard.took(sum(map(len, parts[1:])))
                self.take(parts)
        except zmq.Again:
            self._guard.emptied()

    def turn(self) -> bool:
        self._guard.check()
        self.source.connected = self._guard.connected
        more = super().turn()
        self._send_answers()
        return more

    def close(self, linger_ms: int = 500) -> None:
        """Release the address."""
        super().close()
        self._context.destroy(linger=linger_ms)
        self._guard.close()

    def _send_answers(self) -> None:
        """An answer that cannot be sent is dropped: its producer asks again."""
        for route, answer in self.answers:
            try:
                self.socket.send_multipart((route, answer), zmq.NOBLOCK)
            except zmq.ZMQError as error:
                log.debug("%s could not answer a producer: %s", self.name, error)
        self.answers.clear()
