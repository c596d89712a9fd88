"""The inbox of a party: the socket at which it hears others, also the threads of its own process.

With keys, each message has the key of its sender on it. One without a key is from a thread of this
process: it may ring, with an empty message, and say nothing. A large message has several parts.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

import zmq

from driftline.deploy.runtime.sockets.transport import MESSAGE_BYTES_MAX, Transport
from driftline.deploy.runtime.sockets.zap import USER_ID, Zap
from driftline.engine.errors import MalformedMessage, Unavailable
from driftline.engine.wire.party import Role

DRAIN = 64
"""Messages that a turn takes at most."""

_EVENTS = int(zmq.EVENTS)
"""A plain integer: pyzmq's enumeration costs more than the call that takes it."""

_NOBLOCK = int(zmq.NOBLOCK)


class Inbox:
    """An inbox, which listens once it is made. Raises Unavailable if its address is taken."""

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        party: Role,
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
        self.socket.bind(inproc(party))
        try:
            self.socket.bind(address)
            self.address = transport.told(self.socket.getsockopt_string(zmq.LAST_ENDPOINT))
        except Unavailable:
            self.close()
            raise
        except zmq.ZMQError as error:
            self.close()
            raise Unavailable(
                f"{party.name} cannot listen on {address}: {error.strerror}; "
                "is it in use by another run?"
            ) from None

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

    def close(self) -> None:
        """Release the address. Precondition: nothing in this process is connected to it."""
        self.socket.close(linger=0)

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
        party: Role,
        address: str,
        transport: Transport,
        rung: Callable[[], None],
        zap: Zap,
    ) -> None:
        self._zap = zap
        super().__init__(context, party, address, transport, rung)

    def check(self) -> None:
        self._zap.check()

    def _receive(self, flags: int) -> None:
        frame = self.socket.recv(flags, copy=False)
        more = self.socket.recv_multipart(_NOBLOCK, copy=False) if frame.more else ()
        if flags == 0:
            self.party.now = monotonic()
            self.woken(self.party.now)
        if not frame and not more:
            self.rung()
            return
        try:
            voice = self._zap.voices[str(frame.get(USER_ID))]
        except (zmq.ZMQError, KeyError):
            self.party.drop(MalformedMessage("it came without a key"))
            return
        if not more:
            self.party.receive(frame.bytes, voice)
            return
        parts = [part.buffer for part in (frame, *more)]
        size = sum(map(len, parts))
        if size > MESSAGE_BYTES_MAX:
            self.party.drop(MalformedMessage(f"{size} bytes, at most {MESSAGE_BYTES_MAX}"))
        else:
            self.party.receive(b"".join(parts), voice)


def inproc(party: Role) -> str:
    """The address of a party's inbox for threads of this process."""
    return f"inproc://inbox-of-{party.name}"
