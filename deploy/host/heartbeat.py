"""The heartbeat: a sign of life from beside the loop, for as long as the loop is in one turn.

Takes nothing; gives `Alive` (master). A user function may take as long as it likes: its process is
not missing, and its work is not lost. That it takes long is told, again and again, with operator
and label. A function in C that does not let go of the interpreter's lock silences the heartbeat,
too; then the master waits longer for this process once it has come back (`Coordinator`).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from time import monotonic
from types import TracebackType
from typing import Self

import zmq

from driftline.deploy.host.runtime import Runtime
from driftline.deploy.parties.member import HELLO_EVERY_S, Member

log = logging.getLogger("driftline")

SLOW_AFTER_S = 5.0
"""How long a turn may take before it is told; then again whenever it has taken twice as long."""


class Heartbeat:
    """Speaks for the members of a runtime, in a thread of its own. A context manager."""

    def __init__(
        self, runtime: Runtime, members: Sequence[Member], slow_after_s: float = SLOW_AFTER_S
    ) -> None:
        self._runtime = runtime
        self._members = members
        self._slow_after = slow_after_s
        self._tell_after = slow_after_s
        self._turns = -1
        self._since = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._loop, daemon=True)

    def __enter__(self) -> Self:
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
        with self._runtime.connect(self._members[0].addresses["master"]) as master:
            while not self._over.wait(HELLO_EVERY_S):
                self.beat(monotonic(), master)

    def beat(self, now: float, master: zmq.Socket[bytes]) -> None:
        """Say that the members live, if their loop cannot."""
        turns = self._runtime.turns
        if self._runtime.waits or turns != self._turns:
            self._turns, self._since = turns, now
            self._tell_after = self._slow_after
            return
        for member in self._members:
            for _, alive in member.beat(now):
                master.send(alive, zmq.NOBLOCK)
        took = now - self._since
        if took >= self._tell_after:
            self._tell_after = 2 * took
            for member in self._members:
                log.warning("%s has been busy for %.0f s with %s", member.name, took, member.doing)
