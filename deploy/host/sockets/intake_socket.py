"""The intake's socket: carries messages of producers, and answers, over a ZeroMQ ROUTER.

A message has one part, and before it the route to its producer, which the ROUTER adds and removes.
Producers reach the ROUTER through a guard only (`deploy.host.guarding.guard`). With keys, it takes
only connections of those that have a right to its source, and each message has the name of its key.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import zmq

from driftline.deploy.host.guarding.guard import CONNECTIONS_MAX, Guard
from driftline.deploy.host.sockets.transport import CURVE_BYTES, become_server
from driftline.deploy.host.sockets.zap import SOURCE, USER_ID, Zap
from driftline.deploy.host.upkeep.freed import share_one_heap
from driftline.deploy.keys.authorised import Authorised
from driftline.deploy.keys.key import Key
from driftline.deploy.parties.intake import MESSAGE_BYTES_MAX, Intake
from driftline.deploy.parties.receiver import WINDOW, WINDOW_BYTES
from driftline.engine.errors import MalformedMessage
from driftline.engine.events import log
from driftline.engine.sources.logs.received import ReceivedSource
from driftline.engine.wire.addresses import Address
from driftline.engine.wire.kinds import Voice

ANSWERS_MAX = 64
"""Answers to each producer that may wait in ZeroMQ's memory."""

DRAIN = 64
"""Messages that a turn takes at most."""


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of an intake, and the source to which a producer needs a right."""

    own: Key
    authorised: Authorised
    source: str


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
        keys: Keys | None = None,
    ) -> None:
        """`folder`: where only this user makes files; the ROUTER's own address is there; `keys`:
        None lets in whoever reaches the address."""
        super().__init__(source, name=name, window=window, window_bytes=window_bytes)
        share_one_heap()
        inside = str(folder / f"{name}.router")
        self._context = zmq.Context()
        self.socket = self._context.socket(zmq.ROUTER)
        self.socket.set(zmq.SNDHWM, ANSWERS_MAX)
        self.socket.set(zmq.RCVHWM, 0)  # the guard bounds what comes, see there
        self.socket.setsockopt(zmq.MAXMSGSIZE, MESSAGE_BYTES_MAX)
        self.socket.setsockopt(zmq.BACKLOG, 2 * connections_max)
        self._zap: Zap | None = None
        if keys is not None:
            self._zap = Zap(self._context, keys.authorised, name)
            become_server(self.socket, keys.own, f"{SOURCE}{keys.source}")
            self.socket.setsockopt(zmq.MAXMSGSIZE, MESSAGE_BYTES_MAX + CURVE_BYTES)
        self.socket.bind(f"ipc://{inside}")
        try:
            self._guard = Guard(
                address,
                inside,
                name=name,
                message_bytes_max=MESSAGE_BYTES_MAX + (CURVE_BYTES if keys else 0),
                connections_max=connections_max,
                keyed=keys is not None,
            )
        except BaseException:
            self._release(0)
            raise
        source.connected = 0
        self.address = self._guard.address
        if keys is not None:
            self.address = str(Address(self.address, keys.own.public))

    def drain(self) -> None:
        """Take the messages that have come, as far as there is room."""
        try:
            for _ in range(DRAIN):
                if not self.room():
                    return
                self._take_next()
        except zmq.Again:
            self._guard.emptied()

    def _take_next(self) -> None:
        """Take a message. What it was is gone when the next one comes: it may have 16 MiB."""
        if self._zap is None:
            parts = self.socket.recv_multipart(zmq.NOBLOCK)
            self._guard.took(sum(map(len, parts[1:])))
            self.take(parts)
        else:
            frames = self.socket.recv_multipart(zmq.NOBLOCK, copy=False)
            self._guard.took(sum(map(len, frames[1:])))
            self._take_with_key(frames, self._zap.voices)

    def _take_with_key(self, frames: list[zmq.Frame], voices: Mapping[str, Voice]) -> None:
        try:
            voice = voices[str(frames[-1].get(USER_ID))]
        except (zmq.ZMQError, KeyError):
            self.drop(MalformedMessage("it came without a key"))
            return
        self.take([frame.bytes for frame in frames], voice)

    def turn(self) -> bool:
        self._guard.check()
        if self._zap is not None:
            self._zap.check()
        self.source.connected = self._guard.connected
        more = super().turn()
        self._send_answers()
        return more

    def close(self, linger_ms: int = 500) -> None:
        """Release the address."""
        super().close()
        self._release(linger_ms)
        self._guard.close()

    def _release(self, linger_ms: int) -> None:
        if self._zap is not None:
            self._zap.close()
        self._context.destroy(linger=linger_ms)

    def _send_answers(self) -> None:
        """An answer that cannot be sent is dropped: its producer asks again."""
        for route, answer in self.answers:
            try:
                self.socket.send_multipart((route, answer), zmq.NOBLOCK)
            except zmq.ZMQError as error:
                log.debug("%s could not answer a producer: %s", self.name, error)
        self.answers.clear()
