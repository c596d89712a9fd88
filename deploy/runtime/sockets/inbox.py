"""Inbox of a role: the socket that receives messages of other processes, and wake-ups of threads.

A thread of this process wakes the loop with an empty message. If the process has keys, ZeroMQ
attaches the name of the sender's key to each message of another process. The inbox then drops any
message that has content but no key, and accepts a large message in several parts.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

import zmq

from driftline.deploy.runtime.sockets.transport import MESSAGE_BYTES_MAX, Transport
from driftline.deploy.runtime.sockets.zap import USER_ID, Zap
from driftline.engine.errors import MalformedMessage, Unavailable
from driftline.engine.wire.role import Role

MESSAGES_PER_TURN_MAX = 64
"""Maximum number of messages that a turn takes from an inbox, besides one that ended a wait."""

_EVENTS = int(zmq.EVENTS)
"""A plain integer, because pyzmq's enumeration would cost more than the rest of the call."""

_NOBLOCK = int(zmq.NOBLOCK)


class Inbox:
    """Inbox that listens once it is constructed.

    The constructor raises Unavailable if the role cannot listen at the address or others could not
    connect to it, NotPermitted if the transport forbids the address.
    """

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        role: Role,
        address: str,
        transport: Transport,
        on_thread_results: Callable[[], None],
    ) -> None:
        """`on_thread_results`: called after an empty message of a thread of this process."""
        transport.check_listener(role.name, address)
        self.role = role
        self.on_thread_results = on_thread_results
        self.on_wait_end: Callable[[float], None] = lambda now: None
        """Called with the current time (seconds, monotonic) when a message has ended a wait."""
        self.socket = context.socket(zmq.PULL)
        self.socket.set_hwm(0)
        transport.configure_listening(self.socket, address)
        self.socket.bind(inproc(role))
        try:
            self.socket.bind(address)
            self.address = transport.resolve_advertised(
                self.socket.getsockopt_string(zmq.LAST_ENDPOINT)
            )
        except Unavailable:
            self.close()
            raise
        except zmq.ZMQError as error:
            self.close()
            raise Unavailable(
                f"{role.name} cannot listen on {address}: {error.strerror}; "
                "is it in use by another run?"
            ) from None

    def take(self, wait_ms: int = 0) -> None:
        """Pass arrived messages to the role; if there are none, wait up to `wait_ms` for one."""
        socket, get_option = self.socket, self.socket.get
        try:
            if wait_ms and not get_option(_EVENTS):
                socket.set(zmq.RCVTIMEO, wait_ms)
                self._receive(0)
            for _ in range(MESSAGES_PER_TURN_MAX):
                # Cheaper than `zmq.Again`, which would be raised once in every turn.
                if not get_option(_EVENTS):
                    return
                self._receive(_NOBLOCK)
        except zmq.Again:
            pass  # the wait timed out, or a connection closed after `EVENTS` reported its message

    def check(self) -> None:
        """Raise ThreadDied if a thread that the inbox needs has died."""

    def close(self) -> None:
        """Release the address. Precondition: nothing in this process is connected to it."""
        self.socket.close(linger=0)

    def _receive(self, flags: int) -> None:
        data = self.socket.recv(flags)
        if flags == 0:
            self.role.now = monotonic()
            self.on_wait_end(self.role.now)
        if data:
            self.role.receive(data)
        else:
            self.on_thread_results()


class GuardedInbox(Inbox):
    """Inbox that other machines can reach; it checks the key of each message."""

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        role: Role,
        address: str,
        transport: Transport,
        on_thread_results: Callable[[], None],
        zap: Zap,
    ) -> None:
        self._zap = zap
        super().__init__(context, role, address, transport, on_thread_results)

    def check(self) -> None:
        self._zap.check()

    def _receive(self, flags: int) -> None:
        frame = self.socket.recv(flags, copy=False)
        more = self.socket.recv_multipart(_NOBLOCK, copy=False) if frame.more else ()
        if flags == 0:
            self.role.now = monotonic()
            self.on_wait_end(self.role.now)
        if not frame and not more:
            self.on_thread_results()
            return
        try:
            sender_key = self._zap.sender_keys[str(frame.get(USER_ID))]
        except (zmq.ZMQError, KeyError):
            self.role.drop(MalformedMessage("the message has no key"))
            return
        if not more:
            self.role.receive(frame.bytes, sender_key)
            return
        parts = [part.buffer for part in (frame, *more)]
        size = sum(map(len, parts))
        if size > MESSAGE_BYTES_MAX:
            self.role.drop(MalformedMessage(f"it has {size} bytes, over {MESSAGE_BYTES_MAX}"))
        else:
            self.role.receive(b"".join(parts), sender_key)


def inproc(role: Role) -> str:
    """Return the address of a role's inbox for threads of this process."""
    return f"inproc://inbox-of-{role.name}"
