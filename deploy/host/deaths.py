"""Deaths of processes: when who is started again, when that is no use any more, and what is said.

Takes deaths and the progress of the run; gives the time of the next start, or None. Our own kills
are no deaths.

The record that kills a process is under way when it does. So the run is past it once everything is
settled that was under way at the first death; until then each death of that process counts. What
was under way and is not settled is what a process that is started again goes carefully with.
"""

from __future__ import annotations

import signal

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
        self._settled = self._sent = 0
        self._counts: dict[str, int] = {}
        self._under_way: dict[str, int] = {}
        """The last time that was under way at the first death that counts."""
        self._started: dict[str, float] = {}

    def started(self, name: str, now: float) -> None:
        """A process begins to live."""
        self._started[name] = now

    def moved(self, settled: int, sent: int) -> None:
        """Everything below `settled` is done with, `sent` is the last time that is under way.

        A replay goes back with both; what counts is how far they ever were.
        """
        self._settled = max(self._settled, settled)
        self._sent = max(self._sent, sent)
        for name in [name for name, last in self._under_way.items() if last < self._settled]:
            del self._under_way[name], self._counts[name]

    def died(self, name: str, now: float) -> float | None:
        """When to start a process again that has died; None if that is no use any more."""
        if now - self._started.get(name, now) > LONG_LIFE_S:
            self._counts.pop(name, None)
            self._under_way.pop(name, None)
        count = self._counts[name] = self._counts.get(name, 0) + 1
        self._under_way.setdefault(name, self._sent)
        if count >= self.limit:
            return None
        return now + (FIRST_PAUSE_S * 2 ** (count - 2) if count > 1 else 0.0)

    def careful(self, name: str) -> tuple[int, int]:
        """The first and last time that a process works off element by element; (-1, -1): none."""
        last = self._under_way.get(name)
        return (-1, -1) if last is None else (self._settled, last)


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
