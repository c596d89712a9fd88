"""The intake's socket: carries messages of producers, and answers, over a ZeroMQ ROUTER.

A message has one part, preceded by the route to its producer, which the ROUTER adds and removes.
With keys, the ROUTER accepts only connections whose key has a right to the intake's source, and
ZeroMQ attaches the name of the key to each received message.

Bounds: ZeroMQ rejects messages above `MESSAGE_BYTES_MAX` and connections that do not complete their
handshake in time. The ROUTER has no high-water mark for received messages: libzmq 4.3.5 aborts the
process if a connection with heartbeats breaks while blocked by that mark
(https://github.com/zeromq/libzmq/issues/4767). So the intake always takes messages off the socket.
While the source has no room, they wait in a backlog of `BACKLOG_BYTES`; a message beyond that is
dropped as if the network had lost it, and its producer sends it again.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from logging import INFO
from socket import AF_INET6

import zmq
from msgspec import Struct

from driftline.connectors.logs.received import ReceivedSource
from driftline.deploy.roles.intake import (
    MESSAGE_BYTES_MAX,
    RECORDS_IN_MEMORY_MAX,
    WINDOW_BYTES,
    Intake,
)
from driftline.deploy.runtime.loop.memory import share_one_heap
from driftline.deploy.runtime.sockets.keys import Authorised, KeyPair
from driftline.deploy.runtime.sockets.listening import bound_to, file_of, listen
from driftline.deploy.runtime.sockets.monitor import ConnectionMonitor
from driftline.deploy.runtime.sockets.transport import (
    CURVE_BYTES,
    HANDSHAKE_MS,
    KEEPALIVE_S,
    become_server,
    destroy_context,
    raise_descriptor_limit,
)
from driftline.deploy.runtime.sockets.zap import SOURCE, USER_ID, Zap
from driftline.engine.errors import MalformedMessage
from driftline.engine.events import RateLimitedLog, log
from driftline.engine.wire.addresses import Address
from driftline.engine.wire.kinds import SenderKey

ANSWERS_MAX = 64
"""Largest number of answers per producer that wait in ZeroMQ's memory."""

MESSAGES_PER_TURN_MAX = 64
"""Maximum number of messages that `handle_input` takes off the socket; `take_waiting` takes up to
twice as many off the backlog."""

BACKLOG_BYTES = 1 << 25
"""Largest number of bytes of messages that wait for room; one larger message may wait alone."""

OVERHEAD_BYTES = 1 << 8
"""Bytes of memory for a waiting message in addition to its size."""


class Keys(Struct, frozen=True):
    """Keys of an intake, and the name of the source that a producer needs a right to."""

    own: KeyPair
    authorised: Authorised
    source: str


class IntakeSocket(Intake):
    """Intake that producers connect to. Raises Unavailable if the address cannot be used."""

    def __init__(
        self,
        source: ReceivedSource,
        address: str,
        *,
        name: str = "intake",
        window: int = RECORDS_IN_MEMORY_MAX,
        window_bytes: int = WINDOW_BYTES,
        keys: Keys | None = None,
    ) -> None:
        """`keys`: None: accept every producer that can connect."""
        super().__init__(source, name=name, window=window, window_bytes=window_bytes)
        share_one_heap()
        raise_descriptor_limit()
        listener = listen(address)
        self.address = bound_to(listener)
        self._context = zmq.Context()
        self.socket = self._context.socket(zmq.ROUTER)
        self.socket.set(zmq.SNDHWM, ANSWERS_MAX)
        self.socket.set(zmq.RCVHWM, 0)
        self.socket.setsockopt(zmq.MAXMSGSIZE, MESSAGE_BYTES_MAX + (CURVE_BYTES if keys else 0))
        self.socket.setsockopt(zmq.HANDSHAKE_IVL, HANDSHAKE_MS)
        self.socket.setsockopt(zmq.TCP_KEEPALIVE, 1)
        self.socket.setsockopt(zmq.TCP_KEEPALIVE_IDLE, KEEPALIVE_S)
        self._zap: Zap | None = None
        if keys is not None:
            self._zap = Zap(self._context, keys.authorised, name)
            become_server(self.socket, keys.own, f"{SOURCE}{keys.source}")
        self._connections = ConnectionMonitor(self.socket)
        if listener.family == AF_INET6:
            self.socket.setsockopt(zmq.IPV6, 1)
        self._file = file_of(self.address)
        self.socket.setsockopt(zmq.USE_FD, listener.detach())
        self.socket.bind(self.address)
        if keys is not None:
            self.address = str(Address(self.address, keys.own.public))
        source.connected = 0
        self._backlog: deque[tuple[list[bytes], SenderKey | None, int]] = deque()
        """(parts, key, size in bytes) of received messages that wait for room in the source."""
        self._backlog_bytes = 0
        self._overflow_log = RateLimitedLog(
            "backlog-full", f"{name} has dropped a message, which its producer sends again", INFO
        )

    def handle_input(self) -> None:
        """Move received messages into the backlog, and on into the source while there is room."""
        with suppress(zmq.Again):
            for _ in range(MESSAGES_PER_TURN_MAX):
                self._enqueue_next()
        self.take_waiting()

    def take_waiting(self) -> None:
        """Move messages from the backlog into the source while there is room."""
        for _ in range(2 * MESSAGES_PER_TURN_MAX):
            if not self.has_work():
                return
            self._take_next()

    def has_work(self) -> bool:
        """Return whether a message waits and there is room for it."""
        return bool(self._backlog) and self.has_room()

    def _enqueue_next(self) -> None:
        """Take one message off the socket. Raises zmq.Again if there is none."""
        sender_key: SenderKey | None = None
        if self._zap is None:
            parts = self.socket.recv_multipart(zmq.NOBLOCK)
        else:
            frames = self.socket.recv_multipart(zmq.NOBLOCK, copy=False)
            try:
                sender_key = self._zap.sender_keys[str(frames[-1].get(USER_ID))]
            except (zmq.ZMQError, KeyError):
                self.drop(MalformedMessage("the message has no key"))
                return
            parts = [frame.bytes for frame in frames]
        size = sum(map(len, parts)) + OVERHEAD_BYTES
        if self._backlog and self._backlog_bytes + size > BACKLOG_BYTES:
            self._overflow_log.add(self.now, "the flow is slower than its producers")
            return
        self._backlog_bytes += size
        self._backlog.append((parts, sender_key, size))

    def _take_next(self) -> None:
        """Handle the first message of the backlog. Precondition: there is one."""
        parts, sender_key, size = self._backlog.popleft()
        self._backlog_bytes -= size
        self.take(parts, sender_key)

    def tick(self, now: float) -> float:
        if self._zap is not None:
            self._zap.check()
        self.source.connected = self._connections.count()
        self._overflow_log.log_if_due(now)
        return super().tick(now)

    def turn(self) -> bool:
        self.take_waiting()
        more = super().turn()
        self._send_answers()
        return more

    def close(self, linger_ms: int = 500) -> None:
        """Release the address. `linger_ms`: how long to keep sending the last answers."""
        super().close()
        self._overflow_log.close()
        if self._zap is not None:
            self._zap.close()
        self._connections.close()
        destroy_context(self._context, linger_ms)
        if self._file is not None:
            self._file.unlink(missing_ok=True)

    def _send_answers(self) -> None:
        """Send the answers; drop one that cannot be sent: its producer repeats the request."""
        for route, answer in self.answers:
            try:
                self.socket.send_multipart((route, answer), zmq.NOBLOCK)
            except zmq.ZMQError as error:
                log.debug("%s could not answer a producer: %s", self.name, error)
        self.answers.clear()
