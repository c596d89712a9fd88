"""Driftline as a measured system whose processes are killed, once, while documents come."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from time import monotonic

from driftline.bench.measuring.corpus import Documents
from driftline.bench.measuring.meter import Arrival
from driftline.bench.systems.death import Death
from driftline.bench.systems.engine import Engine

SUPERVISE_EVERY_S = 0.05
"""As a run does; a death is noticed at once."""


class Mortal(Engine):
    """A local cluster under supervision, as a run has it."""

    def __init__(
        self,
        documents: Documents,
        killed: str,
        death: Death,
        *,
        spares: int,
        nodes: int,
        checkpoint_s: float,
    ) -> None:
        """`killed`: "node" (the first one), or "all" with the master."""
        super().__init__(
            documents,
            "exactly-once",
            nodes=nodes,
            checkpoint_s=checkpoint_s,
            spares=spares,
            log_level=logging.INFO,
        )
        self._killed, self._death, self._spares = killed, death, spares
        self._supervise_at = 0.0
        self.cluster.wake(self.runtime)

    def send(self, number: int) -> None:
        """Hand over a document, after the kill if its time has come."""
        if self._death.due(number) and self.cluster.spares.ready >= self._spares:
            pids = self.cluster.pids
            self._death.kill(pids.values() if self._killed == "all" else [pids["node-0"]])
        super().send(number)

    def receive(self) -> list[Arrival]:
        """The outputs that have arrived since the last call."""
        arrivals = super().receive()
        self._death.note(arrivals)
        self._supervise()
        return arrivals

    def wait(self, timeout_ms: int) -> None:
        """Sleep until an output has arrived or a process has died, or for `timeout_ms`."""
        super().wait(timeout_ms)
        self._supervise()

    def log_lines(self) -> Sequence[str]:
        """None: this process tells all of them itself."""
        return ()

    def _supervise(self) -> None:
        now = monotonic()
        if self.cluster.has_lost_one or now >= self._supervise_at:
            self._supervise_at = now + SUPERVISE_EVERY_S
            self.cluster.supervise(self.front.settled, self.front.furthest)
