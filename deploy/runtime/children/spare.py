"""A spare: a process that has imported Driftline and loaded the flow, and waits to be told what it
is, a node or the master.

Both ends of the talk, over a pair of sockets. The spare says READY once it has loaded; it is given
the text that a new process has as its argument (`ProcessConfig`), and says TAKEN at once. So a
spare that does not answer, as it was stopped for example, gets no role.

The spare has the code that the flow's file had when the spare was started. It has compared it with
the code of the command, as each process does. If the file has changed since then, a new process
would refuse to start; or, if only a module that the flow imports has changed, it would go on with
other code than the rest of the run. A spare can do neither, so it is used whatever has happened to
the file.
"""

from __future__ import annotations

import socket
from collections.abc import Callable

from driftline.deploy.runtime.children.launched import Launched

READY, TAKEN = b"r", b"t"

TAKES_WITHIN_S = 0.5
"""How long a spare that is ready may take to say TAKEN: it has nothing else to do."""


class Spare:
    """The supervisor's end. `child`: the process."""

    def __init__(self, launch: Callable[[int], Launched]) -> None:
        """`launch`: launches the process, with the file of its end."""
        self._link, its_end = socket.socketpair()
        with its_end:
            self.child = launch(its_end.fileno())
        self._link.setblocking(False)
        self._ready = False
        self.told = False
        """Whether people were told that it is ready."""

    @property
    def ready(self) -> bool:
        """Whether it has loaded, and has no role yet."""
        if not self._ready and self._link.fileno() >= 0:
            self._ready = self._hears(READY)
        return self._ready

    def become(self, name: str, config: str) -> bool:
        """Give it its role. Precondition: it is ready. Returns whether it has taken it; if not, it
        is killed."""
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
            self.child.rename("spare")
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
    """The spare's end: say that it is ready, wait for its role, and say that it has taken it.

    Returns the text; "" if there is none, as the supervisor needs it no more.
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
