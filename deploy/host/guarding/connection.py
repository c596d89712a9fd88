"""A guarded connection: passes bytes between a peer and ZeroMQ, while the peer keeps the rules.

Invariant: of a connection there are in memory at most two reads (`guard.SMALL`) on their way to
ZeroMQ, and `ANSWERS_BYTES_MAX` and a read on their way to the peer.
"""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, cast

from driftline.deploy.host.guarding.zmtp import Framing, Violation

if TYPE_CHECKING:
    from driftline.deploy.host.guarding.guard import Guard

ANSWERS_BYTES_MAX = 1 << 20
"""Bytes that may wait for a peer that does not read."""

CLOSE_S = 5.0
"""How long a connection that is being closed may take to send what is left."""

_READY, _ERROR = b"\x05READY", b"\x05ERROR"
_READY_BYTES_MAX = 1024
"""ZeroMQ's own greeting and READY are shorter, with CURVE too."""


class Connection(asyncio.BufferedProtocol):
    """The connection of a peer, and that to ZeroMQ which it has for itself."""

    def __init__(self, guard: Guard, loop: asyncio.AbstractEventLoop) -> None:
        self._guard = guard
        self._loop = loop
        self._framing = Framing(guard.message_bytes_max)
        self._outside: asyncio.Transport | None = None
        self._inside: asyncio.Transport | None = None
        self._joining: asyncio.Task[None] | None = None
        self._rest = b""
        """What was read and does not pass yet."""
        self._stops: set[str] = set()
        """Why the peer is not read: "join", "full", "room"."""
        self._peer = ""
        self._began_at = self._moved_at = monotonic()
        """When the connection was made; when the frame that is under way began."""
        self._frames = 0
        self._beginning: bytearray | None = bytearray()
        """What ZeroMQ has sent, until that has its READY in it; None: it has."""
        self._closing_at = 0.0

    # The side of the peer.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._outside = cast(asyncio.Transport, transport)
        self._peer = _name_of(self._outside)
        _keep_alive(self._outside)
        self._guard.joined(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._guard.buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._rest += self._guard.buffer[:nbytes]
        self.go_on()

    def go_on(self) -> None:
        """Pass on what was read, as far as it may pass."""
        if self._outside is None:
            return
        self._stops.discard("room")
        framing = self._framing
        try:
            count = framing.passing(self._rest, self._may_begin)
        except Violation as violation:
            for size in framing.finished:  # their ends have not passed, and never will
                self._give_up(size)
            self.refuse(str(violation))
            return
        passing, self._rest = self._rest[:count], self._rest[count:]
        if passing:
            self._pass(passing)
        for size in framing.finished:
            self._guard.budget(size).finish(size, self._reserves(size))
        if framing.finished and not self._guard.keyed:
            self._guard.spoke(self)
        if framing.waits:
            self._stops.add("room")
            self._guard.waits(self)
        self._read_or_not()

    def connection_lost(self, error: Exception | None) -> None:
        self._outside = None
        if self._joining is not None:
            self._joining.cancel()
        if self._inside is None:
            self._left()
        else:
            self._inside.close()

    # The side of ZeroMQ.

    def _pass(self, data: bytes) -> None:
        if self._inside is not None:
            self._inside.write(data)
            return
        self._stops.add("join")
        self._joining = self._loop.create_task(self._join(data))

    async def _join(self, data: bytes) -> None:
        try:
            inside, _ = await self._loop.create_unix_connection(
                lambda: _Inside(self), self._guard.inside
            )
        except OSError as error:
            self._guard.troubled(error)
            self.abort()
            return
        finally:
            self._joining = None
        if self._outside is None:
            inside.abort()
            return
        inside.set_write_buffer_limits(0)
        inside.write(data)
        self._stops.discard("join")
        self._read_or_not()

    def joined(self, inside: asyncio.Transport) -> None:
        """The connection to ZeroMQ is made."""
        self._inside = inside

    def answered(self, data: bytes) -> None:
        """ZeroMQ has sent something to the peer."""
        if self._beginning is not None:
            self._beginning += data
            if _READY in self._beginning or len(self._beginning) > _READY_BYTES_MAX:
                self._beginning = None
                if self._guard.keyed:
                    self._guard.spoke(self)
            elif _ERROR in self._beginning:
                self._guard.closed(self._peer, "its key has no right here")
        if self._outside is None:
            return
        self._outside.write(data)
        if self._outside.get_write_buffer_size() > ANSWERS_BYTES_MAX:
            self.refuse(f"it does not read: more than {ANSWERS_BYTES_MAX} bytes wait for it")

    def fill(self, full: bool) -> None:
        """ZeroMQ takes no more at the moment, or takes more again."""
        if full:
            self._stops.add("full")
        else:
            self._stops.discard("full")
        self._read_or_not()

    def parted(self) -> None:
        """ZeroMQ has closed its side."""
        self._inside = None
        if self._outside is None:
            self._left()
        elif not self._outside.is_closing():
            self._closing_at = monotonic()
            self._outside.close()

    # Both.

    def look(self, now: float) -> None:
        """Close the connection if it has been too slow."""
        guard, framing = self._guard, self._framing
        frames = framing.commands + framing.messages
        stopped = self._stops - {"room"}
        if stopped or frames != self._frames or not (framing.is_amid or self._rest):
            self._frames, self._moved_at = frames, now
        shaken = framing.commands and self._beginning is None
        if self._closing_at:
            if now > self._closing_at + CLOSE_S:
                self.abort()
        elif not shaken and now > self._began_at + guard.handshake_s:
            self.refuse(f"no handshake of ZeroMQ within {guard.handshake_s:g} s")
        elif now > self._moved_at + guard.frame_s:
            self.refuse(f"a message was not complete within {guard.frame_s:g} s")

    def refuse(self, reason: str) -> None:
        """Close the connection at once, and say why."""
        self._guard.closed(self._peer, reason)
        self.abort()

    def abort(self) -> None:
        """Close the connection at once."""
        for side in (self._outside, self._inside):
            if side is not None:
                side.abort()
        self._outside = None
        self._guard.left(self)

    def _left(self) -> None:
        self._guard.left(self)
        self._give_up(self._framing.size)
        self._framing.size = 0

    def _give_up(self, size: int) -> None:
        """A message that has begun will not pass."""
        if self._reserves(size):
            self._guard.budget(size).give_up(size)

    def _reserves(self, size: int) -> bool:
        return self._guard.budget(size) is self._guard.large

    def _may_begin(self, size: int) -> bool:
        if self._guard.keyed and self._beginning is not None:
            raise Violation("a message before its key was accepted")
        return self._guard.budget(size).begin(size, self._reserves(size))

    def _read_or_not(self) -> None:
        if self._outside is None or self._outside.is_closing():
            return
        if self._stops:
            self._outside.pause_reading()
        else:
            self._outside.resume_reading()


class _Inside(asyncio.Protocol):
    """The side of a connection that leads to ZeroMQ."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._connection.joined(cast(asyncio.Transport, transport))

    def data_received(self, data: bytes) -> None:
        self._connection.answered(data)

    def pause_writing(self) -> None:
        self._connection.fill(True)

    def resume_writing(self) -> None:
        self._connection.fill(False)

    def connection_lost(self, error: Exception | None) -> None:
        self._connection.parted()


def _name_of(transport: asyncio.Transport) -> str:
    """The address of a peer, for the log."""
    name = transport.get_extra_info("peername")
    return f"from {name[0]}:{name[1]}" if isinstance(name, tuple) else "from this machine"


def _keep_alive(transport: asyncio.Transport) -> None:
    """A machine that vanishes closes no connection: the kernel asks for it."""
    peer = transport.get_extra_info("socket")
    if peer is not None and peer.family != socket.AF_UNIX:
        with suppress(OSError):
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 60)
