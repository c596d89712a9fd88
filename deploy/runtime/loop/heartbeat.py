"""The heartbeat: a thread that reports that a process is alive while its loop is busy with a turn.

It sends `Alive` to the master, and a sign of life to the parent over a pipe, whatever the loop does
(`lifeline.KeepAlive`). Thus a user function may take as long as it likes: its process does not
count as dead, its work does not count as lost, and its parent knows that it does not hang. A
warning reports the slow function, with its operators, label and record, and again each time the
duration has doubled. A C function that holds the interpreter lock silences the heartbeat, too; once
its process responds again, the master increases its timeout (`Coordinator`).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from contextlib import suppress
from math import inf
from time import monotonic
from types import TracebackType
from typing import Self

import zmq

from driftline.deploy.roles.member import HELLO_EVERY_S, Member
from driftline.deploy.runtime.loop.runtime import Runtime
from driftline.deploy.runtime.supervision.lifeline import keep_alive
from driftline.engine.errors import MalformedMessage, NotPermitted
from driftline.engine.events import event_fields, log

SLOW_AFTER_S = 5.0
"""Duration of a turn before the first warning, in seconds."""


class Heartbeat:
    """Thread that sends `Alive` for the members of a runtime. A context manager."""

    def __init__(
        self,
        runtime: Runtime,
        members: Sequence[Member],
        slow_after_s: float = SLOW_AFTER_S,
        keep_alive_fd: int = -1,
        hung_after_s: float = inf,
    ) -> None:
        """`keep_alive_fd`: the child's end of a `KeepAlive`; -1: no parent reads it.
        `hung_after_s`: the loop counts as hung if one turn takes longer; inf: never, as user code
        may be slow."""
        self._hung_after_s = hung_after_s
        self._keep_alive_fd = keep_alive_fd
        if keep_alive_fd >= 0:
            os.set_blocking(keep_alive_fd, False)
        self._runtime = runtime
        self._members = members
        self._slow_after = slow_after_s
        self._warn_after_s = slow_after_s
        self._turns = -1
        self._since = 0.0
        self.beaten_at = 0.0
        """When the thread last checked the loop (seconds, monotonic)."""
        self._sockets: dict[str, tuple[str, zmq.Socket[bytes]]] = {}
        """Receiver -> its address and a socket to it, used by this thread only."""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._loop, daemon=True)

    def __enter__(self) -> Self:
        self._keep_alive()  # the parent detects hangs only after a first sign of life
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        self._thread.join()

    def _loop(self) -> None:
        while not self._over.wait(HELLO_EVERY_S):
            now = monotonic()
            self.beat(now)
            if now - self._since <= self._hung_after_s:
                self._keep_alive()
        for _, way in self._sockets.values():
            way.close()

    def _keep_alive(self) -> None:
        if self._keep_alive_fd >= 0:
            keep_alive(self._keep_alive_fd)

    def beat(self, now: float) -> None:
        """Send `Alive` for each member if the loop is in the same turn as at the last call."""
        self.beaten_at = now
        turns = self._runtime.turns
        if self._runtime.is_waiting or turns != self._turns:
            self._turns, self._since = turns, now
            self._warn_after_s = self._slow_after
            return
        for member in self._members:
            for to, alive in member.make_heartbeats(now):
                if address := member.addresses.get(to):
                    self._send(to, address, alive)
        took = now - self._since
        if took >= self._warn_after_s:
            self._warn_after_s = 2 * took
            for member in self._members:
                log.warning(
                    "%s has been busy for %.0f s with %s",
                    *(member.name, took, member.doing),
                    extra=event_fields("slow", name=member.name, seconds=took, doing=member.doing),
                )

    def _send(self, to: str, address: str, data: bytes) -> None:
        """Send to a receiver, which may move. The loop logs errors at its next turn."""
        before, way = self._sockets.pop(to, ("", None))
        if way is not None and before != address:
            way.close()
            way = None
        with suppress(MalformedMessage, NotPermitted):
            way = way or self._runtime.connect(address, to)
        if way is None:
            return
        try:
            way.send(data, zmq.NOBLOCK)
        except zmq.Again:  # the receiver rejected our key
            way.close()
        else:
            self._sockets[to] = address, way
