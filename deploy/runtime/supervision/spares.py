"""Spares: processes that have imported Driftline and loaded the flow, ready to take a role.

Supervisor and spare communicate over a socket pair. The spare sends READY once it has loaded; it
receives the text that a new process has as its argument (`ProcessConfig`), and sends TAKEN at once.
A spare that does not answer in time, for example because it was stopped, is killed.

A spare contains the code of the flow's file at the spare's start, and has compared it with the
command's code, as every process does. If the file has changed since then, a new process would
refuse to start; or, if only a module that the flow imports has changed, it would run other code
than the rest of the run. A spare has neither problem, so it is used even if the file has changed.
"""

from __future__ import annotations

import socket
from collections.abc import Callable

from driftline.deploy.runtime.supervision.child_process import ChildProcess
from driftline.deploy.runtime.supervision.restarts import CANNOT_START, RestartPolicy, describe_exit
from driftline.engine.events import event_fields, log

CALM_S = 2.0
"""Time in seconds without a death or start of another process before a spare is started."""

SPARE = "spare"
"""Name of a spare in log lines."""

READY, TAKEN = b"r", b"t"

TAKE_TIMEOUT_S = 0.5
"""Timeout in seconds for TAKEN: a ready spare has nothing else to do."""


class _WarmStandby:
    """The supervisor's end of one spare. `child`: the process."""

    def __init__(self, launch: Callable[[int], ChildProcess]) -> None:
        self._link, its_end = socket.socketpair()
        with its_end:
            self.child = launch(its_end.fileno())
        self._link.setblocking(False)
        self._ready = False

    @property
    def is_ready(self) -> bool:
        """Whether the spare has loaded the flow, and has no role yet."""
        if not self._ready and self._link.fileno() >= 0 and self._receives(READY):
            self._ready = True
            pid = self.child.pid
            fields = event_fields("spare-ready", pid=pid)
            log.debug("a spare process is ready (pid %d)", pid, extra=fields)
        return self._ready

    def assign_role(self, name: str, config: str) -> bool:
        """Send the spare its role. Return whether it confirmed the role; if not, kill it.

        Precondition: `is_ready`.
        """
        self._ready = False
        self._link.settimeout(TAKE_TIMEOUT_S)
        self.child.rename(name)
        try:
            self._link.sendall(config.encode() + b"\n")
        except OSError:
            taken = False
        else:
            taken = self._receives(TAKEN)
        self.close()
        if not taken:
            self.child.rename(SPARE)
            self.child.process.kill()
        return taken

    def close(self) -> None:
        """Close the link: a spare without a role exits."""
        self._link.close()

    def _receives(self, word: bytes) -> bool:
        try:
            return self._link.recv(1) == word
        except OSError:  # nothing has arrived, or it has died
            return False


def await_role(file: int) -> str:
    """In the spare: send READY, wait for the role, and send TAKEN.

    Return the text; "" if the supervisor no longer needs the spare.
    """
    with socket.socket(fileno=file) as link:
        try:
            link.sendall(READY)
            with link.makefile() as lines:
                text = lines.readline()
            if not text.endswith("\n"):
                return ""
            link.sendall(TAKEN)
        except OSError:  # the supervisor has closed the link
            return ""
    return text


class Spares:
    """The spares of one run: `number` of them, as long as they start.

    Invariant: no spare is started while the run starts or recovers, because it would compete for
    CPU time with the processes that the run waits for; so a short run has none. A spare's death
    does not affect the run. The spare is replaced with the usual pauses; after one that cannot
    start, or dies repeatedly, the run continues without spares.
    """

    def __init__(self, number: int, launch: Callable[[int], ChildProcess]) -> None:
        """`launch`: starts a spare, given the descriptor of its end of the socket pair."""
        self._number = number
        self._launch = launch
        self._spares: list[_WarmStandby] = []
        self._restarts = RestartPolicy()
        self._start_at = 0.0

    @property
    def ready_count(self) -> int:
        """The number of ready spares."""
        return sum(spare.is_ready for spare in self._spares)

    def postpone_start(self, now: float) -> None:
        """Start no spare for `CALM_S`: a process of the run has died or was started."""
        self._start_at = max(self._start_at, now + CALM_S)

    def maintain(self, now: float) -> None:
        """Start a missing spare, unless another one is loading; replace those that died."""
        for spare in list(self._spares):
            status = spare.child.process.poll()
            if status is not None:
                self._spares.remove(spare)
                self._died(spare, status, now)
        if self.ready_count == len(self._spares) < self._number and now >= self._start_at:
            self._spares.append(_WarmStandby(self._launch))
            self._restarts.record_start(SPARE, now)

    def take(self, name: str, config: str) -> ChildProcess | None:
        """Return a spare that has confirmed the role `name`; None if no spare has."""
        for spare in list(self._spares):
            if spare.is_ready and spare.assign_role(name, config):
                self._spares.remove(spare)
                return spare.child
        return None

    def stop(self) -> None:
        """End all spares. May be called again."""
        for spare in self._spares:
            spare.close()
            spare.child.end()
        self._spares.clear()

    def _died(self, spare: _WarmStandby, status: int, now: float) -> None:
        spare.close()
        spare.child.flush()
        spare.child.cut()
        at = None if status == CANNOT_START else self._restarts.record_death(SPARE, now)
        ended = "cannot start" if status == CANNOT_START else describe_exit(status)
        if at is None:
            self._number = 0
            then = "from now on there is none; a process that dies is started anew"
        else:
            self._start_at = max(self._start_at, at)
            then = "another one is started"
        fields = event_fields("spare-died", pid=spare.child.pid, status=status)
        log.warning("a spare process (pid %d) %s; %s", spare.child.pid, ended, then, extra=fields)
