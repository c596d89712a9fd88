"""Driftline as a measured system whose processes are killed, once, while documents come."""

from __future__ import annotations

import logging
import os
import signal
from time import monotonic, perf_counter

from driftline.bench.measuring.corpus import Documents
from driftline.bench.measuring.meter import Arrival
from driftline.bench.systems.engine import Engine
from driftline.engine.errors import Unavailable

SUPERVISE_EVERY_S = 0.05
"""As a run does; a death is noticed at once."""


class Mortal(Engine):
    """A local cluster under supervision, as a run has it."""

    def __init__(
        self,
        documents: Documents,
        killed: str,
        kill_with: int,
        *,
        spares: int,
        nodes: int,
        checkpoint_s: float,
    ) -> None:
        """`killed`: "node" (the first one), "master", or "all" of them at once; `kill_with`: the
        document that comes right after the kill, or a later one, if the spares are not ready."""
        super().__init__(
            documents,
            "exactly-once",
            nodes=nodes,
            checkpoint_s=checkpoint_s,
            spares=spares,
            log_level=logging.INFO,
        )
        self.killed_at: float | None = None
        self.arrived_at: list[float] = []
        """When outputs have arrived, in the order of their arrival."""
        self._killed, self._kill_with, self._spares = killed, kill_with, spares
        self._supervise_at = 0.0
        self.cluster.wake(self.runtime)

    def send(self, number: int) -> None:
        """Hand over a document, after the kill if its time has come."""
        due = self.killed_at is None and number >= self._kill_with
        if due and self.cluster.spares.ready >= self._spares:
            self._kill()
        super().send(number)

    def receive(self) -> list[Arrival]:
        """The outputs that have arrived since the last call."""
        arrivals = super().receive()
        self.arrived_at += [at for _, _, at in arrivals]
        self._supervise()
        return arrivals

    def wait(self, timeout_ms: int) -> None:
        """Sleep until an output has arrived or a process has died, or for `timeout_ms`."""
        super().wait(timeout_ms)
        self._supervise()

    def _supervise(self) -> None:
        now = monotonic()
        if self.cluster.has_lost_one or now >= self._supervise_at:
            self._supervise_at = now + SUPERVISE_EVERY_S
            self.cluster.supervise(self.front.settled, self.front.furthest)

    def _kill(self) -> None:
        pids = self.cluster.pids
        if self._killed != "all":
            pids = {name: pid for name, pid in pids.items() if name.startswith(self._killed)}
            pids = dict(list(pids.items())[:1])
        self.killed_at = perf_counter()
        for pid in pids.values():
            os.kill(pid, signal.SIGKILL)

    def kill_time(self) -> float:
        """When it was killed, in seconds of `perf_counter`. Raises Unavailable if it was not."""
        if self.killed_at is None:
            raise Unavailable(
                "the spare process was not ready in time: is the machine busy with other work?"
            )
        return self.killed_at
