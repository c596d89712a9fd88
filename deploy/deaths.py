"""Deaths of processes: when who is started again, when that is no use any more, and what is said.

Takes deaths and the progress of the run; gives the time of the next start, or None. Invariant: a
process is started again only while the run has moved on since its last `limit` deaths, or they lie
far apart. Our own kills are no deaths.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence

DEATHS_MAX = 5
"""Deaths of one process without progress of the run, unless said otherwise."""

FIRST_PAUSE_S = 0.1
"""Before the second start in a row; it doubles."""

LONG_LIFE_S = 600.0
"""Who has lived as long as this does not die in a loop: an idle run makes no progress."""


class Deaths:
    """The deaths of the processes of one run."""

    def __init__(self, limit: int = DEATHS_MAX) -> None:
        self.limit = limit
        self.furthest: tuple[int, ...] = ()
        """How far the run has got, per front."""
        self._counts: dict[str, int] = {}
        self._started: dict[str, float] = {}

    def started(self, name: str, now: float) -> None:
        """A process begins to live."""
        self._started[name] = now

    def moved(self, progress: Sequence[int]) -> None:
        """The run has got as far as this; a replay, which goes back, is no progress."""
        known = self.furthest or (0,) * len(progress)
        furthest = tuple(map(max, known, progress))
        if furthest != known:
            self._counts.clear()
        self.furthest = furthest

    def died(self, name: str, now: float) -> float | None:
        """When to start a process again that has died; None if that is no use any more."""
        if now - self._started.get(name, now) > LONG_LIFE_S:
            self._counts.pop(name, None)
        count = self._counts[name] = self._counts.get(name, 0) + 1
        if count >= self.limit:
            return None
        return now + (FIRST_PAUSE_S * 2 ** (count - 2) if count > 1 else 0.0)

    def careful_from(self, name: str) -> int:
        """The time from which on a process goes element by element; -1: nowhere."""
        if not self._counts.get(name):
            return -1
        return min(self.furthest, default=0)


_HINTS = {
    signal.SIGKILL: " (is there enough memory? The log of the kernel tells)",
    signal.SIGSEGV: " (code in C that a function calls, or a damaged file)",
    signal.SIGBUS: " (a file that has been truncated, or a full disk)",
    signal.SIGABRT: " (code in C that gave up)",
}


def how(status: int) -> str:
    """How a process died, by its exit status."""
    if status < 0:
        try:
            number = signal.Signals(-status)
        except ValueError:
            return f"ended by signal {-status}"
        return f"ended by {number.name}{_HINTS.get(number, '')}"
    if status == 0:
        return "ended by itself with status 0 (something in it called exit)"
    return f"ended by itself with status {status}"
