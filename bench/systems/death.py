"""The death of a trial: before which document it comes, when it was, and when outputs came."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
from contextlib import suppress
from time import perf_counter

from driftline.bench.measuring.meter import Arrival
from driftline.engine.errors import Unavailable


class Death:
    """One kill -9 of a measured system."""

    def __init__(self, kill_with: int) -> None:
        """`kill_with`: the document that comes right after it, or a later one, if the spares are
        not ready."""
        self.arrived_at: list[float] = []
        """When outputs have arrived, in the order of their arrival."""
        self._kill_with = kill_with
        self._at: float | None = None

    def due(self, number: int) -> bool:
        """Whether it has to come before this document."""
        return self._at is None and number >= self._kill_with

    def kill(self, pids: Iterable[int]) -> None:
        """Kill these processes, all at once."""
        self._at = perf_counter()
        for pid in pids:
            with suppress(ProcessLookupError):  # it has followed its parent
                os.kill(pid, signal.SIGKILL)

    def note(self, arrivals: Iterable[Arrival]) -> None:
        """Outputs have arrived."""
        self.arrived_at += [at for _, _, at in arrivals]

    @property
    def at(self) -> float:
        """When it was, in seconds of `perf_counter`. Raises Unavailable if it was not."""
        if self._at is None:
            raise Unavailable(
                "the spare process was not ready in time: is the machine busy with other work?"
            )
        return self._at
