"""Spares: keeps processes ready to take the place of one that dies (`spare`).

Takes: the time, when a process has died or was started, and how to launch a spare. Gives: a process
that has taken its role. Invariant: no spare is started while the run starts or recovers, as it
would compete for the processors with what the run waits for; so a short run has none.

A spare that dies is no event for the run. It is replaced at the pace of other processes; one that
cannot start, or dies again and again, is the last one: the run goes on without spares.
"""

from __future__ import annotations

from collections.abc import Callable

from driftline.deploy.runtime.children.deaths import Deaths, how
from driftline.deploy.runtime.children.launched import Launched
from driftline.deploy.runtime.children.spare import Spare
from driftline.deploy.runtime.children.statuses import CANNOT_START
from driftline.deploy.runtime.config import ProcessConfig
from driftline.engine.events import about, log

CALM_S = 2.0
"""Seconds without a death or a start of another process after which a spare is started."""

SPARE = "spare"
"""The name of a spare in log lines."""


class Spares:
    """The spares of one run: `number` of them, as long as they can be had."""

    def __init__(self, number: int, launch: Callable[[int], Launched]) -> None:
        """`launch`: see `Spare`."""
        self._number = number
        self._launch = launch
        self._spares: list[Spare] = []
        self._deaths = Deaths()
        self._start_at = 0.0

    @property
    def ready(self) -> int:
        """How many are ready."""
        return sum(spare.ready for spare in self._spares)

    def disturbed(self, now: float) -> None:
        """A process of the run has died, or was started."""
        self._start_at = max(self._start_at, now + CALM_S)

    def look(self, now: float) -> None:
        """Start one that is missing, unless another one is loading; replace those that died."""
        for spare in list(self._spares):
            status = spare.child.process.poll()
            if status is not None:
                self._spares.remove(spare)
                self._died(spare, status, now)
            elif not spare.told and spare.ready:
                spare.told = True
                pid = spare.child.pid
                told = about("spare-ready", pid=pid)
                log.debug("a spare process is ready (pid %d)", pid, extra=told)
        if self.ready == len(self._spares) < self._number and now >= self._start_at:
            self._spares.append(Spare(self._launch))
            self._deaths.started(SPARE, now)

    def take(self, name: str, config: ProcessConfig) -> Launched | None:
        """A process that has become `name`; None if there is no spare for it."""
        for spare in list(self._spares):
            if spare.ready and spare.become(name, config.to_json()):
                self._spares.remove(spare)
                return spare.child
        return None

    def stop(self) -> None:
        """End all spares. May be called again."""
        for spare in self._spares:
            spare.close()
            spare.child.end()
        self._spares.clear()

    def _died(self, spare: Spare, status: int, now: float) -> None:
        spare.close()
        spare.child.hear_out()
        spare.child.cut()
        at = None if status == CANNOT_START else self._deaths.died(SPARE, now)
        ended = "cannot start" if status == CANNOT_START else how(status)
        if at is None:
            self._number = 0
            then = "from now on there is none; a process that dies is started anew"
        else:
            self._start_at = max(self._start_at, at)
            then = "another one is started"
        told = about("spare-died", pid=spare.child.pid, status=status)
        log.warning("a spare process (pid %d) %s; %s", spare.child.pid, ended, then, extra=told)
