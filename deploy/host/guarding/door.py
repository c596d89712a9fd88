"""The door of a party with keys: which connections to its inbox may stay.

Members speak to ZeroMQ itself: nothing stands between that would add to their latency. Of a
stranger ZeroMQ takes the handshake only, and no frame larger than `PART_BYTES`. It ends a
connection whose handshake takes longer than `HANDSHAKE_MS`, or whose key the ZAP handler refuses.
But it accepts connections until the process has no descriptors left. So this thread hears of each
one, by the monitor of the socket; and if there are more than `connections_max`, the oldest stranger
has to go, or the new one if all others are members. To make one go is to shut its connection down,
as if its peer had left: any thread may do that.

ZeroMQ does not say whose handshake is over, but the kernel knows how much was sent to each: a
stranger is sent a greeting and a WELCOME, and a member READY, too. The number of a descriptor may
be another file's by the time at which this thread hears of it. So it is duplicated first, and then
looked at: whether it is a connection of this port, to the same peer.

If this thread cannot keep up, the monitor's queue fills, and ZeroMQ's thread waits: it is never
more than that ahead. So the socket's owner must not bind, unbind or stop the monitor while the door
is open: pyzmq would wait for ZeroMQ's thread and keep the interpreter, for which the door waits.
The door ends with the socket.
"""

from __future__ import annotations

import errno
import socket
import struct
import threading
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic

import zmq

from driftline.deploy.host.guarding.descriptors import raise_limit
from driftline.deploy.host.guarding.listening import BACKLOG, bound_to, listen
from driftline.deploy.host.guarding.monitored import happened
from driftline.deploy.host.threads import ThreadDied
from driftline.deploy.parties.seldom import Seldom

CONNECTIONS_MAX = 200
"""Connections to a party at a time; each member has one or two."""

_TOLD = (
    zmq.Event.ACCEPTED
    | zmq.Event.DISCONNECTED
    | zmq.Event.HANDSHAKE_SUCCEEDED
    | zmq.Event.HANDSHAKE_FAILED_AUTH
    | zmq.Event.HANDSHAKE_FAILED_NO_DETAIL
    | zmq.Event.MONITOR_STOPPED
)

_TOLD_MAX = 1000
"""Events that ZeroMQ may be ahead of this thread: its own default, which cannot be changed."""

_OTHER_DESCRIPTORS = 256

_TO_STRANGERS = 64 + 170 + 12
"""Bytes that ZeroMQ sends to a stranger at most: a greeting, WELCOME, ERROR. READY has 52."""

_SENT_AT = 200
"""Where the kernel's `tcp_info` has how many bytes were sent, and how many of them again."""

_LOOK_MS, _TELL_MS = 50, 1000

_LEFT = (errno.EPIPE, errno.ECONNRESET)
"""How a handshake fails whose peer has left."""


@dataclass(slots=True)
class _Stranger:
    """A connection that has not shown its key, as far as is known."""

    peer: tuple[str, int] | None
    """Its address; None: it had left before one could ask."""
    began_at: float

    @property
    def name(self) -> str:
        return f"from {self.peer[0]}:{self.peer[1]}" if self.peer else "it has left"


class Door:
    """A door. ZeroMQ listens, and is watched, once it is made. Raises Unavailable."""

    def __init__(
        self,
        inbox: zmq.Socket[bytes],
        address: str,
        *,
        name: str,
        handshake_s: float,
        connections_max: int = CONNECTIONS_MAX,
    ) -> None:
        """`inbox`: a socket with keys that is not bound there yet; `name`: whose it is;
        `handshake_s`: how long ZeroMQ lets a handshake take."""
        listener = listen(address, name)
        listener.setblocking(False)
        self.address = bound_to(listener)
        self.connections_max = connections_max
        self.handshake_s = handshake_s
        self._port: int = listener.getsockname()[1]
        self._strangers: dict[int, _Stranger] = {}
        """Descriptor -> who may not have shown a key, the oldest first."""
        self._members: set[int] = set()
        """The descriptors of those who have."""
        self._unplaced = 0
        """Handshakes that are over, of which it is not known whose they are."""
        self._failed: int | None = None
        """The error of the handshake of the connection that is about to end."""
        self._closed = Seldom("connection-closed", f"{name} closed a connection")
        self._died: ThreadDied | None = None
        raise_limit(connections_max + _TOLD_MAX + _OTHER_DESCRIPTORS)
        where = f"inproc://door-of-{name}"
        inbox.monitor(where, int(_TOLD))
        # Of another Context object: this thread closes it, and not who destroys the socket's own.
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context.shadow(inbox.context)
        self._monitor: zmq.Socket[bytes] = self._context.socket(zmq.PAIR)
        self._monitor.set(zmq.RCVHWM, 1)
        self._monitor.connect(where)
        self._thread = threading.Thread(target=self._run, name=f"door of {name}", daemon=True)
        self._thread.start()
        inbox.setsockopt(zmq.BACKLOG, BACKLOG)
        inbox.setsockopt(zmq.USE_FD, listener.detach())
        inbox.bind(self.address)

    @property
    def connected(self) -> int:
        """How many connections there are."""
        return len(self._strangers) + len(self._members)

    def check(self) -> None:
        """Raises ThreadDied if the door cannot go on."""
        if self._died is not None:
            raise self._died

    def close(self) -> None:
        """Wait for the end. Precondition: the socket is closed."""
        self._thread.join(timeout=5)

    # The thread.

    def _run(self) -> None:
        with self._monitor as monitor:
            try:
                self._watch(monitor)
            except zmq.ContextTerminated:
                pass
            except BaseException as error:
                self._died = ThreadDied.of(error, "the door")
                with suppress(zmq.ContextTerminated):
                    while not _is_last(monitor.recv_multipart()):  # ZeroMQ must not wait for us
                        pass
        self._closed.close()

    def _watch(self, monitor: zmq.Socket[bytes]) -> None:
        while True:
            wait_ms = _LOOK_MS if self._unplaced else _TELL_MS if self._closed.waits else None
            if monitor.poll(wait_ms):
                told = monitor.recv_multipart()
                if _is_last(told):
                    return
                self._happened(*happened(told))
            else:
                self._place()
            self._closed.tell(monotonic())

    def _happened(self, event: int, value: int) -> None:
        if event == zmq.EVENT_ACCEPTED:
            self._came(value)
        elif event == zmq.EVENT_DISCONNECTED:
            self._gone(value)
        elif event == zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL:
            self._failed = value
        else:
            self._unplaced += 1

    def _came(self, descriptor: int) -> None:
        peer = None
        connection = _copy(descriptor)
        if connection is not None:
            with connection:
                peer = self._peer(connection)
        self._strangers[descriptor] = _Stranger(peer, monotonic())
        if self.connected > self.connections_max:
            self._make_room(newest=descriptor)

    def _gone(self, descriptor: int) -> None:
        if self._unplaced:
            self._place()
        failed, self._failed = self._failed, None
        self._members.discard(descriptor)
        stranger = self._strangers.pop(descriptor, None)
        if stranger is None:
            return
        if failed is not None:
            if failed not in _LEFT and monotonic() > stranger.began_at + self.handshake_s / 2:
                self._tell(stranger, f"no handshake of ZeroMQ within {self.handshake_s:g} s")
        elif self._unplaced:  # a member that was here for a moment; or the handler has refused it
            self._unplaced -= 1
        else:
            self._tell(stranger, "it does not shake hands as a member does: ZMTP 3, and CURVE")

    def _make_room(self, newest: int) -> None:
        """Let the oldest stranger go; or the newest connection, if all others are members."""
        last = self._strangers[newest]
        for descriptor, stranger in list(self._strangers.items()):
            if descriptor != newest and not self._is_member(descriptor, stranger):
                self._shut(descriptor, stranger)
                why = f"it has shown no key, and {self.connections_max} are too many"
                self._tell(stranger, why)
                return
        self._shut(newest, last)
        self._tell(last, f"all {self.connections_max} connections are in use")

    def _place(self) -> None:
        """Find out whose handshakes are over."""
        for descriptor, stranger in list(self._strangers.items()):
            self._is_member(descriptor, stranger)
        if not self._strangers:
            self._unplaced = 0

    def _is_member(self, descriptor: int, stranger: _Stranger) -> bool:
        """Whether a stranger has turned out to be a member, and is counted as such from now on."""
        connection = _copy(descriptor)
        if connection is None or stranger.peer is None:
            return False
        with connection:
            if self._peer(connection) != stranger.peer or _sent(connection) <= _TO_STRANGERS:
                return False
        del self._strangers[descriptor]
        self._members.add(descriptor)
        self._unplaced = max(0, self._unplaced - 1)
        return True

    def _shut(self, descriptor: int, stranger: _Stranger) -> None:
        del self._strangers[descriptor]
        connection = _copy(descriptor)
        if connection is not None:
            with connection, suppress(OSError):  # its peer may have left
                if stranger.peer is not None and self._peer(connection) == stranger.peer:
                    connection.shutdown(socket.SHUT_RDWR)

    def _peer(self, connection: socket.socket) -> tuple[str, int] | None:
        """The other side of a connection of this port; None: it is none."""
        try:
            if connection.getsockname()[1] != self._port:
                return None
            host, port, *_ = connection.getpeername()
        except (OSError, IndexError, ValueError):  # another file; or its peer has left
            return None
        return host, port

    def _tell(self, stranger: _Stranger, reason: str) -> None:
        self._closed.add(monotonic(), f"{reason} ({stranger.name})")


def _is_last(told: list[bytes]) -> bool:
    """Whether this is the last that ZeroMQ tells of a socket."""
    return happened(told)[0] == zmq.EVENT_MONITOR_STOPPED


def _copy(descriptor: int) -> socket.socket | None:
    """A file as a socket of our own, which it may not be; None: it is closed."""
    try:
        return socket.fromfd(descriptor, socket.AF_INET, socket.SOCK_STREAM)
    except OSError:
        return None


def _sent(connection: socket.socket) -> int:
    """Bytes that were sent on a connection."""
    told = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _SENT_AT + 16)
    sent, again = struct.unpack_from("QQ", told, _SENT_AT)
    return int(sent - again)
