"""The pipes between a parent and its child: the child ends as soon as its parent is gone, and the
parent hears that the child lives.

The parent holds the write end of a pipe, the child inherits the read end. When the parent ends, in
whatever way, the kernel closes the pipe, and the child ends at once: also while a user function
keeps its loop busy, and also if the parent ended before the child began. On Linux the kernel sends
SIGKILL, so that even a function in C that holds the interpreter's lock does not keep it alive.

Over a second pipe the child says that it lives (`KeepAlive`): a thread of it writes there all the
time. So the parent notices a child that hangs.

A program that is not ours is tied to its parent by this file: it is executed, arranges for the
signal, and then becomes the program (`tied`).
"""

from __future__ import annotations

import fcntl
import os
import select
import signal
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress

READ_BYTES = 1 << 16
"""All that fits into a pipe."""

ORPHANED = 70
"""Exit status of a child whose parent is gone, where the kernel does not kill it."""


class Lifeline:
    """The parent's end of the pipe. Precondition: the child is started with `pass_fds=[fd]`.

    Each child has a pipe of its own, as the kernel signals only one process for each pipe.
    """

    def __init__(self) -> None:
        self.fd, self._held = os.pipe()

    def started(self) -> None:
        """Close the child's end here: the child has been started."""
        os.close(self.fd)

    def cut(self) -> None:
        """Close the parent's end: the child ends, if it has not yet. May be called again."""
        if self._held >= 0:
            os.close(self._held)
            self._held = -1


class KeepAlive:
    """The parent's end of the pipe. Precondition: the child is started with `pass_fds=[fd]`."""

    def __init__(self) -> None:
        self._hears, self.fd = os.pipe()
        os.set_blocking(self._hears, False)

    def started(self) -> None:
        """Close the child's end here: the child has been started."""
        os.close(self.fd)

    def heard(self) -> bool:
        """Whether the child has written since the last call."""
        with suppress(BlockingIOError):
            return bool(os.read(self._hears, READ_BYTES))
        return False

    def close(self) -> None:
        """Close the parent's end. May be called again."""
        if self._hears >= 0:
            os.close(self._hears)
            self._hears = -1


def keep_alive(fd: int) -> None:
    """In the child: say that it lives. A pipe that is full, or has no reader any more, is no harm.

    Precondition: the pipe does not block.
    """
    with suppress(BlockingIOError, BrokenPipeError):
        os.write(fd, b".")


def hold_on(fd: int) -> None:
    """In the child: end this process as soon as the parent is gone."""
    _let_kill(fd)
    threading.Thread(target=_wait, args=(fd,), daemon=True).start()


def tied(fd: int, program: Sequence[str]) -> list[str]:
    """The command line that runs a program as a child which ends with its parent.

    Only the kernel can end it: elsewhere than on Linux it is not tied.
    """
    return [sys.executable, "-P", __file__, str(fd), *program]


def _become(fd: int, program: list[str]) -> None:
    """In the child: end with the parent, and be the program from now on."""
    _let_kill(fd)
    if select.select([fd], [], [], 0)[0]:  # the parent ended before there was anybody to kill
        os._exit(ORPHANED)
    os.execv(program[0], program)


def _let_kill(fd: int) -> None:
    """Let the kernel kill this process, whatever program it runs, when the parent is gone."""
    if hasattr(fcntl, "F_SETSIG"):
        fcntl.fcntl(fd, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(fd, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_ASYNC)


def _wait(fd: int) -> None:
    select.select([fd], [], [])
    os._exit(ORPHANED)


if __name__ == "__main__":
    _become(int(sys.argv[1]), sys.argv[2:])
