"""Deaths of processes: decides when a process is started again, and when that is given up.

Takes deaths and the progress of the run; gives the time of the next start, or None. A process that
the command has killed itself (`--kill-every`) does not count as dead.

A record that kills a process is under way at that moment. So the run is past that record once
everything that was under way at the first death is settled; each death before that counts. The
records that were under way then are the ones that the restarted process is careful with: it works
them off one by one, and notes each before it begins.
"""

from __future__ import annotations

import signal

DEATHS_MAX = 5
"""How often a process may die without progress of the run, by default."""

FIRST_PAUSE_S = 0.1
"""The pause before the second start in a row; each further one is twice as long."""

LONG_LIFE_S = 600.0
"""A process that has lived for longer is in no crash loop, even if an idle run made no progress."""


class Deaths:
    """The deaths of the processes of one run."""

    def __init__(self, limit: int = DEATHS_MAX) -> None:
        self.limit = limit
        self._settled = self._sent = 0
        self._counts: dict[str, int] = {}
        self._under_way: dict[str, int] = {}
        """Process -> the last time that was under way at its first death that counts."""
        self._started: dict[str, float] = {}
        self._ways: dict[str, tuple[int, int]] = {}
        """Master -> how often it has made way in vain, and how far the run was the last time."""

    def started(self, name: str, now: float) -> None:
        """A process has been started."""
        self._started[name] = now

    def moved(self, settled: int, sent: int) -> None:
        """The run has got further: all times below `settled` are done, `sent` is the last one sent.

        Both are smaller again during a replay; the largest values so far count.
        """
        self._settled = max(self._settled, settled)
        self._sent = max(self._sent, sent)
        for name in [name for name, last in self._under_way.items() if last < self._settled]:
            del self._under_way[name], self._counts[name]

    @property
    def settled(self) -> int:
        """How far the run has ever been."""
        return self._settled

    @property
    def has_work(self) -> bool:
        """Whether something that was sent is not settled, or nothing was sent yet."""
        return self._settled <= self._sent

    def in_a_row(self, name: str) -> int:
        """How often a process has died since the run got any further."""
        return self._counts.get(name, 0)

    def made_way(self, name: str) -> None:
        """A master has left the lead to the next one, as it did not reach all members."""
        in_vain, settled = self._ways.get(name, (0, -1))
        self._ways[name] = (in_vain + 1 if settled == self._settled else 0), self._settled

    def in_vain(self, name: str) -> int:
        """How often in a row a master has made way, and the run got no further until the next."""
        return self._ways.get(name, (0, -1))[0]

    def died(self, name: str, now: float) -> float | None:
        """When to start a process again that has died; None if it has died too often."""
        if now - self._started.get(name, now) > LONG_LIFE_S:
            self._counts.pop(name, None)
            self._under_way.pop(name, None)
        count = self._counts[name] = self._counts.get(name, 0) + 1
        self._under_way.setdefault(name, self._sent)
        if count >= self.limit:
            return None
        return now + (FIRST_PAUSE_S * 2 ** (count - 2) if count > 1 else 0.0)

    def careful(self, name: str) -> tuple[int, int]:
        """The first and last time that a process has to be careful with; (-1, -1): none."""
        last = self._under_way.get(name)
        return (-1, -1) if last is None else (self._settled, last)


_HINTS = {
    signal.SIGKILL: " (is there enough memory? The log of the kernel tells)",
    signal.SIGSEGV: " (code in C that a function calls, or a damaged file)",
    signal.SIGBUS: " (a file that has been truncated, or a full disk)",
    signal.SIGABRT: " (code in C called abort: a damaged file, for example)",
}

MAY_BE_DAMAGE = (-signal.SIGSEGV, -signal.SIGBUS, -signal.SIGABRT)
"""Exit statuses of a process that a damaged file may have ended; SIGKILL is sent by others."""

KILLED_SILENT = "ended by SIGKILL, as it was silent"
"""How a process died that the command has killed because nothing was heard of it."""


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
