"""Hang detection: decides which children of a supervisor are killed because they are silent.

A child that lives writes to a pipe of its own all the time, from a thread, whatever its loop does
(`lifeline.KeepAlive`, `deploy.runtime.loop.heartbeat`). So no network, no other process and no slow
function is mistaken for a hang: a child is silent only if it was stopped, has no processor time, or
is in a function in C that keeps the interpreter's lock.

Takes: the children that run, that one was heard, how often each has died without progress, the
time. Gives: the names of children to be killed, and log lines.
Invariants: a child is killed only after it was heard, as starting may take as long as it likes; and
only after a silence of `missing_after_s` and of its patience beyond. Time in which the supervisor
itself stood still does not count: the whole machine may have been suspended. The patience doubles
with each death without progress, so that work that keeps the lock gets to its end, or ends the run
as a crash loop does, with its record.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from driftline.engine.events import about, log

PATIENCE_S = 10.0
"""The shortest time from the moment in which a silence is noticed to the end of the process."""

GAP_S = 1.0
"""A longer time between two looks means that this process, or the machine, stood still."""


@dataclass(frozen=True, slots=True)
class Running:
    """A process that runs; `process`: its name, new with each start."""

    process: str
    pid: int


class HangDetector:
    """The silences of the children of one supervisor.

    `missing_after_s`: silence after which a child is missed.
    """

    def __init__(self, missing_after_s: float) -> None:
        self._missing_after_s = missing_after_s
        self._heard: dict[str, tuple[str, float]] = {}
        """Child -> its process, and when that was heard last."""
        self._missed: set[str] = set()
        self._looked_at = 0.0

    def heard(self, name: str, process: str, now: float) -> None:
        """A child has shown that it lives."""
        self._heard[name] = process, now

    def has_heard(self, name: str, process: str) -> bool:
        """Whether this process was ever heard."""
        return self._heard.get(name, ("", 0.0))[0] == process

    def look(
        self, now: float, running: Mapping[str, Running], deaths: Callable[[str], int]
    ) -> list[str]:
        """The children that are to be killed now; `deaths`: of a child, without progress."""
        away_s, self._looked_at = now - self._looked_at, now
        if away_s > GAP_S:
            self._heard = {n: (p, min(now, at + away_s)) for n, (p, at) in self._heard.items()}
        due = []
        for name, each in running.items():
            silent_s = now - self._heard.get(name, ("", now))[1]
            if not self.has_heard(name, each.process) or silent_s <= self._missing_after_s:
                self._missed.discard(name)
                continue
            patience_s = self.patience_s(deaths(name))
            if name not in self._missed:
                self._missed.add(name)
                _log_missed(name, each, silent_s, patience_s)
            elif silent_s > self._missing_after_s + patience_s:
                self._missed.discard(name)
                del self._heard[name]
                due.append(name)
                log.warning(
                    "%s (pid %d) was silent for %.0f s: it is killed, and started again",
                    *(name, each.pid, silent_s),
                    extra=about("process-hung", name=name, pid=each.pid, seconds=silent_s),
                )
        return due

    def patience_s(self, deaths: int) -> float:
        """How long a silence may go on after it was noticed."""
        return float(max(PATIENCE_S, self._missing_after_s) * 2**deaths)


def _log_missed(name: str, each: Running, silent_s: float, patience_s: float) -> None:
    fields = about("process-silent", name=name, pid=each.pid, seconds=silent_s, patience=patience_s)
    log.warning(
        "%s (pid %d) is silent, for %.0f s now. Unless it is heard, it is killed in %.0f s and "
        "started again. It may have been stopped (kill -CONT %d lets it go on), be short of memory "
        "or of processor time, or be in a function in C that keeps the interpreter's lock",
        *(name, each.pid, silent_s, patience_s, each.pid),
        extra=fields,
    )
