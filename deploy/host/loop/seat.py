"""The seat of a party in a runtime: when its next tick is due, and the socket of its own."""

from __future__ import annotations

from collections.abc import Callable

import zmq

from driftline.engine.wire.party import Party


class Seat:
    """A party in a runtime, and its own socket, which wakes the loop only while there is room."""

    def __init__(
        self,
        party: Party,
        socket: zmq.Socket[bytes] | int | None = None,
        room: Callable[[], bool] = lambda: True,
    ) -> None:
        self.party = party
        self.tick_at = 0.0
        self._socket = socket
        self._room = room
        self._armed = False

    @property
    def sends(self) -> bool:
        """Whether it has messages for ZeroMQ to send; by its own socket it may have sent some."""
        return bool(self.party.outbox) or isinstance(self._socket, zmq.Socket)

    def arm(self, poller: zmq.Poller) -> None:
        """Poll the socket only while there is room: otherwise the loop would spin."""
        if self._socket is not None and self._room() is not self._armed:
            self._armed = not self._armed
            if self._armed:
                poller.register(self._socket, zmq.POLLIN)
            else:
                poller.unregister(self._socket)
