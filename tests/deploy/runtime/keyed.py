"""Runtimes of several hosts in one process, each with its key, on loopback."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import Any, Self

import zmq
from msgspec.structs import replace

from driftline.deploy.runtime.loop.runtime import Runtime
from driftline.deploy.runtime.sockets.keys import Authorised, Rights, make_keys, read_key
from driftline.deploy.runtime.sockets.transport import Transport
from driftline.engine.wire.addresses import parse
from driftline.engine.wire.messages import Message, encode
from tests.deploy.runtime.loop.test_runtime import RecordingRole

SOON_S = 10.0

RIGHTS = {
    "one": Rights(("master", "node-0")),
    "two": Rights(("node-1", "front-*", "poller")),
    "board": Rights(("consumer",), sinks=("totals",)),
    "shop": Rights(("shop",), sources=("orders",)),
}


class Hosts:
    """Set of keys, and runtimes with one key each. A context manager."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.keys = folder / "keys"
        make_keys(self.keys, list(RIGHTS.items()))
        self.runtimes: list[Runtime] = []
        self._context = zmq.Context()

    def transport(self, key: str, **other: Any) -> Transport:
        """Return the transport of a process with this key."""
        own, authorised = read_key(self.keys / f"{key}.key"), Authorised(self.keys)
        return replace(Transport("tcp", own=own, authorised=authorised), **other)

    def start(
        self, key: str, party: str, *, at: str = "tcp://127.0.0.1:*", **other: Any
    ) -> tuple[RecordingRole, str]:
        """Start a role on a host with this key; return the role and its address."""
        runtime = Runtime(transport=self.transport(key, **other))
        self.runtimes.append(runtime)
        listener = RecordingRole(party)
        return listener, runtime.add(listener, at)

    def say(self, speaker: RecordingRole, to: str, message: Message) -> None:
        """Let a role send a message."""
        speaker.send(to, message)

    def until(self, condition: Callable[[], bool], within_s: float = SOON_S) -> None:
        """Run all runtimes until a condition holds."""
        deadline = monotonic() + within_s
        while not condition():
            assert monotonic() < deadline, "the condition did not hold in time"
            for runtime in self.runtimes:
                runtime.step(wait_s=0.005)

    def raw(self, address: str, key: str | None, **pair: str) -> zmq.Socket[bytes]:
        """Connect a plain ZeroMQ socket with a key of the set, another key pair, or no key."""
        where = parse(address)
        socket: zmq.Socket[bytes] = self._context.socket(zmq.PUSH)
        socket.linger = 0
        socket.sndtimeo = 2000
        if key is not None or pair:
            if key is not None:
                own = read_key(self.keys / f"{key}.key")
                pair = {"public": own.public, "secret": own.secret}
            socket.setsockopt_string(zmq.CURVE_SERVERKEY, where.public_key)
            socket.setsockopt_string(zmq.CURVE_PUBLICKEY, pair["public"])
            socket.setsockopt_string(zmq.CURVE_SECRETKEY, pair["secret"])
        socket.connect(where.endpoint)
        return socket

    def speak(
        self, address: str, key: str, spoken: Sequence[tuple[str, Message]]
    ) -> zmq.Socket[bytes]:
        """Send messages with a key of the set; each is a pair (claimed sender, message).

        A rejected connection does not accept all of them.
        """
        socket = self.raw(address, key)
        with suppress(zmq.Again):
            for sender, message in spoken:
                socket.send(encode((sender, 0, 0), message))
        return socket

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._context.destroy(linger=0)
        for runtime in self.runtimes:
            runtime.close(linger_ms=0)
