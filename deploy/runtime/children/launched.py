"""A child that has been launched: its process, its lifeline, and what it says."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from driftline.deploy.runtime.children.child import FOR_THE_COMMAND
from driftline.deploy.runtime.children.lifeline import KeepAlive, Lifeline
from driftline.deploy.runtime.children.mouth import Mouth

SAID_WITHIN_S = 0.5
"""How long to wait for the last words of a dead process, if a child of its own goes on."""

Popen = Callable[[int, int, int], "subprocess.Popen[bytes]"]
"""Starts a process with its lifeline, standard output and standard error."""


class Launched:
    """A child process. `mouth`: what it says on standard error, the last lines of which are kept;
    `printed`: what its functions print to standard output."""

    def __init__(
        self, name: str, popen: Popen, flow: str = "", keep_alive: KeepAlive | None = None
    ) -> None:
        """`name`: of the process in log lines; `flow`: that of its flow, if there are others;
        `keep_alive`: over which the process says that it lives, if it does."""
        self._lifeline = Lifeline()
        self.keep_alive = keep_alive
        self._flow = f"{flow}/" if flow else ""
        self.mouth = Mouth(self._flow + name)
        self._printed = Mouth(self._flow + name, printed=True)
        self.process = popen(self._lifeline.fd, self._printed.fd, self.mouth.fd)
        for pipe in (self._lifeline, self.mouth, self._printed):
            pipe.started()
        if keep_alive is not None:
            keep_alive.started()

    @property
    def pid(self) -> int:
        return self.process.pid

    def rename(self, name: str) -> None:
        """From now on its lines are those of a process with this name."""
        self.mouth.process = self._printed.process = self._flow + name

    def hear_out(self) -> None:
        """Wait until all that it has said before its end is told."""
        self._printed.wait(SAID_WITHIN_S)
        self.mouth.wait(SAID_WITHIN_S)

    def end(self) -> None:
        """Kill it, wait for its end, and hear it out."""
        self.process.kill()
        self.process.wait()
        self.hear_out()
        self.cut()

    def cut(self) -> None:
        """Cut its lifeline: it ends, if it has not yet."""
        self._lifeline.cut()
        if self.keep_alive is not None:
            self.keep_alive.close()


@contextmanager
def deaf_to_interrupts() -> Iterator[None]:
    """Processes of ours started within this context never end by a signal that is for the whole
    group: it is held back until they take no notice of it, and the command ends them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, FOR_THE_COMMAND)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
