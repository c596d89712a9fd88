"""The heartbeat: a thread that reports that a process is alive while its loop is busy with a turn.

While a turn lasts, it sends `Alive` to the master. It sends signs of life to the parent over a pipe
(`lifeline.KeepAlive`) as long as no turn exceeds `hung_after_s`. Thus a user function may be slow:
its process does not count as dead, its work does not count as lost, and the parent knows that the
process does not hang. A slow turn is logged as a warning, and again each time its duration has
doubled; the warning names the operators at work, and the label and record of the first element of
the batch. A C function that holds the interpreter lock silences the heartbeat, too. If it holds the
lock for longer than the timeout of the member, the run recovers; once the process responds again,
the master increases this timeout (`coordinator.members`).
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
        self._slow_after_s = slow_after_s
        self._warn_after_s = slow_after_s
        self._turns = -1
        """`Runtime.turns` at the last check that saw the loop wait or begin another turn."""
        self._turn_began_at = 0.0
        """Time of that check (seconds, monotonic)."""
        self.checked_at = 0.0
        """When the thread last checked the loop (seconds, monotonic)."""
        self._sockets: dict[str, tuple[str, zmq.Socket[bytes]]] = {}
        """Receiver -> its address and a socket to it, used by this thread only."""
        self._stop_event = threading.Event()
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
        self._stop_event.set()
        self._thread.join()

    def _loop(self) -> None:
        while not self._stop_event.wait(HELLO_EVERY_S):
            now = monotonic()
            self.beat(now)
            if now - self._turn_began_at <= self._hung_after_s:
                self._keep_alive()
        for _, socket in self._sockets.values():
            socket.close()

    def _keep_alive(self) -> None:
        if self._keep_alive_fd >= 0:
            keep_alive(self._keep_alive_fd)

    def beat(self, now: float) -> None:
        """If the loop is in the same turn as at the last call: send `Alive` for each member, and
        warn about a slow turn."""
        self.checked_at = now
        turns = self._runtime.turns
        if self._runtime.is_waiting or turns != self._turns:
            self._turns, self._turn_began_at = turns, now
            self._warn_after_s = self._slow_after_s
            return
        for member in self._members:
            for to, alive in member.make_heartbeats(now):
                if address := member.addresses.get(to):
                    self._send(to, address, alive)
        busy_s = now - self._turn_began_at
        if busy_s >= self._warn_after_s:
            self._warn_after_s = 2 * busy_s
            for member in self._members:
                log.warning(
                    "%s has been busy for %.0f s with %s",
                    *(member.name, busy_s, member.doing),
                    extra=event_fields(
                        "slow", name=member.name, seconds=busy_s, doing=member.doing
                    ),
                )

    def _send(self, to: str, address: str, data: bytes) -> None:
        """Send to a receiver, whose address may have changed. Ignore errors: the loop logs them
        when it sends to the same address."""
        known_address, socket = self._sockets.pop(to, ("", None))
        if socket is not None and known_address != address:
            socket.close()
            socket = None
        with suppress(MalformedMessage, NotPermitted):
            socket = socket or self._runtime.connect(address, to)
        if socket is None:
            return
        try:
            socket.send(data, zmq.NOBLOCK)
        except zmq.Again:  # the receiver rejected our key
            socket.close()
        else:
            self._sockets[to] = address, socket
