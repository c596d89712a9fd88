"""The inbox of a party: the socket at which it hears others, also the threads of its own process.

With keys, ZeroMQ listens at a private address only, with a guard before it, and each message has
the key of its sender on it. One without a key is from a thread of this process: it may ring, with
an empty message, and say nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from time import monotonic

import zmq

from driftline.deploy.host.guarding.guard import Guard
from driftline.deploy.host.transport import CURVE_BYTES, MESSAGE_BYTES_MAX, Transport
from driftline.deploy.host.zap import USER_ID, Zap
from driftline.engine.errors import MalformedMessage, Unavailable
from driftline.engine.wire.party import Party

DRAIN = 64
"""Messages that a turn takes at most."""

CONNECTIONS_MAX = 200
"""Connections to a party at a time; each member has one or two."""

_EVENTS = int(zmq.EVENTS)
"""A plain integer: pyzmq's enumeration costs more than the call that takes it."""

_NOBLOCK = int(zmq.NOBLOCK)


class Inbox:
    """An inbox, which listens once it is made. Raises Unavailable if its address is taken."""

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        party: Party,
        address: str,
        transport: Transport,
        rung: Callable[[], None],
    ) -> None:
        """`rung`: a thread of this process has left something."""
        transport.check_listener(party.name, address)
        self.party = party
        self.rung = rung
        self.woken: Callable[[float], None] = lambda now: None
        """Called with the time when a message has ended a wait."""
        self.socket = context.socket(zmq.PULL)
        self.socket.set_hwm(0)
        transport.open_in(self.socket, address)
        try:
            self.address = transport.told(self._listen(address, transport))
        except zmq.ZMQError as error:
            self.socket.close(linger=0)
            raise Unavailable(
                f"{party.name} cannot listen on {address}: {error.strerror}; "
                "is it in use by another run?"
            ) from None
        self.socket.bind(inproc(party))

    def take(self, wait_ms: int = 0) -> None:
        """Hand the party the messages that have come, at most `DRAIN`; if none, wait for one."""
        socket, look = self.socket, self.socket.get
        try:
            if wait_ms and not look(_EVENTS):
                socket.set(zmq.RCVTIMEO, wait_ms)
                self._receive(0)
            for _ in range(DRAIN):
                # Cheaper than `zmq.Again`, which would be raised once in every turn.
                if not look(_EVENTS):
                    return
                self._receive(_NOBLOCK)
        except zmq.Again:
            pass  # nothing has come; or ZeroMQ has seen a message whose connection is gone

    def check(self) -> None:
        """Raises ThreadDied if a thread that it needs cannot go on."""

    def end(self) -> None:
        """The socket is about to be closed."""

    def close(self) -> None:
        """Release the address. Precondition: the socket is closed."""

    def _listen(self, address: str, transport: Transport) -> str:
        """Listen; returns the endpoint."""
        self.socket.bind(address)
        return self.socket.getsockopt_string(zmq.LAST_ENDPOINT)

    def _receive(self, flags: int) -> None:
        data = self.socket.recv(flags)
        if flags == 0:
            self.party.now = monotonic()
            self.woken(self.party.now)
        if data:
            self.party.receive(data)
        else:
            self.rung()


class GuardedInbox(Inbox):
    """The inbox of a party that strangers reach."""

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        party: Party,
        address: str,
        transport: Transport,
        rung: Callable[[], None],
        zap: Zap,
    ) -> None:
        self._zap = zap
        super().__init__(context, party, address, transport, rung)

    def check(self) -> None:
        self._guard.check()
        self._zap.check()

    def end(self) -> None:
        self._guard.ending = True

    def close(self) -> None:
        self._guard.close(wait_s=0.0)

    def _listen(self, address: str, transport: Transport) -> str:
        inside = f"{transport.folder}/{self.party.name}.inside"
        self.socket.bind(f"ipc://{inside}")
        self._guard = Guard(
            address,
            inside,
            name=self.party.name,
            heard=self.party.name,
            message_bytes_max=MESSAGE_BYTES_MAX + CURVE_BYTES,
            connections_max=CONNECTIONS_MAX,
            frame_s=inf,
            keyed=True,
            bounded=False,
        )
        return self._guard.address

    def _receive(self, flags: int) -> None:
        frame = self.socket.recv(flags, copy=False)
        if flags == 0:
            self.party.now = monotonic()
            self.woken(self.party.now)
        if not frame:
            self.rung()
            return
        try:
            voice = self._zap.voices[str(frame.get(USER_ID))]
        except (zmq.ZMQError, KeyError):
            self.party.drop(MalformedMessage("it came without a key"))
            return
        self.party.receive(frame.bytes, voice)


def inproc(party: Party) -> str:
    """The address of a party's inbox for threads of this process."""
    return f"inproc://inbox-of-{party.name}"
