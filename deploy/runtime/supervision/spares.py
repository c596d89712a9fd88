"""Spares: processes that have imported Driftline and loaded the flow, ready to take a role.

Both ends talk over a pair of sockets. The spare says READY once it has loaded; it is given the text
that a new process has as its argument (`ProcessConfig`), and says TAKEN at once. So a spare that
does not answer, as it was stopped for example, gets no role.

The spare has the code that the flow's file had when the spare was started. It has compared it with
the code of the command, as each process does. If the file has changed since then, a new process
would refuse to start; or, if only a module that the flow imports has changed, it would go on with
other code than the rest of the run. A spare can do neither, so it is used whatever has happened to
the file.
"""

from __future__ import annotations

import socket
from collections.abc import Callable

from driftline.deploy.runtime.supervision.child_process import ChildProcess
from driftline.deploy.runtime.supervision.restarts import CANNOT_START, RestartPolicy, how
from driftline.engine.events import about, log

CALM_S = 2.0
"""Seconds without a death or a start of another process after which a spare is started."""

SPARE = "spare"
"""The name of a spare in log lines."""

READY, TAKEN = b"r", b"t"

TAKES_WITHIN_S = 0.5
"""How long a spare that is ready may take to say TAKEN: it has nothing else to do."""


class _WarmStandby:
    """The supervisor's end of one spare. `child`: the process."""

    def __init__(self, launch: Callable[[int], ChildProcess]) -> None:
        self._link, its_end = socket.socketpair()
        with its_end:
            self.child = launch(its_end.fileno())
        self._link.setblocking(False)
        self._ready = False

    @property
    def ready(self) -> bool:
        """Whether it has loaded, and has no role yet."""
        if not self._ready and self._link.fileno() >= 0 and self._hears(READY):
            self._ready = True
            pid = self.child.pid
            told = about("spare-ready", pid=pid)
            log.debug("a spare process is ready (pid %d)", pid, extra=told)
        return self._ready

    def become(self, name: str, config: str) -> bool:
        """Give it its role. Return whether it has taken it; if not, it is killed.

        Precondition: it is ready.
        """
        self._ready = False
        self._link.settimeout(TAKES_WITHIN_S)
        self.child.rename(name)
        try:
            self._link.sendall(config.encode() + b"\n")
        except OSError:
            taken = False
        else:
            taken = self._hears(TAKEN)
        self.close()
        if not taken:
            self.child.rename(SPARE)
            self.child.process.kill()
        return taken

    def close(self) -> None:
        """Release the link: a spare without a role ends."""
        self._link.close()

    def _hears(self, word: bytes) -> bool:
        try:
            return self._link.recv(1) == word
        except OSError:  # nothing has come, or it has died
            return False


def await_role(file: int) -> str:
    """In the spare: say READY, wait for the role, and say TAKEN.

    Returns the text; "" if there is none, as the supervisor needs the spare no more.
    """
    with socket.socket(fileno=file) as link:
        try:
            link.sendall(READY)
            with link.makefile() as lines:
                text = lines.readline()
            if not text.endswith("\n"):
                return ""
            link.sendall(TAKEN)
        except OSError:  # the supervisor has given it up
            return ""
    return text


class Spares:
    """The spares of one run: `number` of them, as long as they start.

    Invariant: no spare is started while the run starts or recovers, as it would compete for the
    processors with what the run waits for; so a short run has none. A spare that dies is no event
    for the run. It is replaced at the pace of other processes; after one that cannot start, or dies
    again and again, the run goes on without spares.
    """

    def __init__(self, number: int, launch: Callable[[int], ChildProcess]) -> None:
        """`launch`: starts a spare with the file of its end."""
        self._number = number
        self._launch = launch
        self._spares: list[_WarmStandby] = []
        self._restarts = RestartPolicy()
        self._start_at = 0.0

    @property
    def ready(self) -> int:
        """How many are ready."""
        return sum(spare.ready for spare in self._spares)

    def disturbed(self, now: float) -> None:
        """Note that a process of the run has died, or was started."""
        self._start_at = max(self._start_at, now + CALM_S)

    def look(self, now: float) -> None:
        """Start one that is missing, unless another one is loading; replace those that died."""
        for spare in list(self._spares):
            status = spare.child.process.poll()
            if status is not None:
                self._spares.remove(spare)
                self._died(spare, status, now)
        if self.ready == len(self._spares) < self._number and now >= self._start_at:
            self._spares.append(_WarmStandby(self._launch))
            self._restarts.started(SPARE, now)

    def take(self, name: str, config: str) -> ChildProcess | None:
        """Return a process that has become `name`; None if there is no spare for it."""
        for spare in list(self._spares):
            if spare.ready and spare.become(name, config):
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
        at = None if status == CANNOT_START else self._restarts.died(SPARE, now)
        ended = "cannot start" if status == CANNOT_START else how(status)
        if at is None:
            self._number = 0
            then = "from now on there is none; a process that dies is started anew"
        else:
            self._start_at = max(self._start_at, at)
            then = "another one is started"
        told = about("spare-died", pid=spare.child.pid, status=status)
        log.warning("a spare process (pid %d) %s; %s", spare.child.pid, ended, then, extra=told)
