"""Pipes between a parent and its child: the child ends when its parent does, and sends signs of
life.

The parent holds the write end of a pipe, and the child inherits the read end. When the parent ends,
for whatever reason, the kernel closes the pipe, and the child ends at once, even while a user
function keeps its loop busy. If the parent ends before the child has started, the child ends when
it starts. On Linux the kernel sends SIGKILL, so even a C function that holds the interpreter lock
does not keep the child alive.

Over a second pipe a thread of the child keeps sending signs of life (`KeepAlive`), so the parent
notices a child that hangs.

A program that is not part of Driftline can end with its parent, too: `wrap_command` starts this
file as a script, which requests the signal from the kernel and then becomes the program.
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
"""The capacity of a pipe in bytes: one read takes all signs."""

ORPHANED = 70
"""Exit status of a child whose parent has ended, where the kernel does not kill the child."""


class Lifeline:
    """The parent's end of the lifeline. Precondition: the child is started with `pass_fds=[fd]`.

    Each child has a pipe of its own, because the kernel signals only one process per pipe.
    """

    def __init__(self) -> None:
        self.fd, self._write_end = os.pipe()

    def on_child_started(self) -> None:
        """Close the child's end in the parent: the child has started."""
        os.close(self.fd)

    def cut(self) -> None:
        """Close the parent's end: the child exits, if it has not yet. May be called again."""
        if self._write_end >= 0:
            os.close(self._write_end)
            self._write_end = -1


class KeepAlive:
    """The parent's end of the pipe for signs of life. Precondition: the child is started with
    `pass_fds=[fd]`."""

    def __init__(self) -> None:
        self._read_end, self.fd = os.pipe()
        os.set_blocking(self._read_end, False)

    def on_child_started(self) -> None:
        """Close the child's end in the parent: the child has started."""
        os.close(self.fd)

    def has_new_sign(self) -> bool:
        """Return whether the child has written since the last call."""
        with suppress(BlockingIOError):
            return bool(os.read(self._read_end, READ_BYTES))
        return False

    def close(self) -> None:
        """Close the parent's end. May be called again."""
        if self._read_end >= 0:
            os.close(self._read_end)
            self._read_end = -1


def keep_alive(fd: int) -> None:
    """In the child: send a sign of life. Ignores a pipe that is full or has no reader any more.

    Precondition: the pipe is non-blocking.
    """
    with suppress(BlockingIOError, BrokenPipeError):
        os.write(fd, b".")


def exit_with_parent(fd: int) -> None:
    """In the child: end this process as soon as the parent has ended."""
    _request_kill_signal(fd)
    threading.Thread(target=_exit_when_closed, args=(fd,), daemon=True).start()


def wrap_command(fd: int, program: Sequence[str]) -> list[str]:
    """Return the command line that runs a program as a child which ends with its parent.

    Only the kernel can end the program, so this works on Linux only.
    """
    return [sys.executable, "-P", __file__, str(fd), *program]


def _become(fd: int, program: list[str]) -> None:
    """In the child: arrange to end with the parent, and become the program."""
    tie_to_parent(fd)
    os.execv(program[0], program)


def _request_kill_signal(fd: int) -> None:
    """Let the kernel kill this process, whatever program it runs, when the parent ends.

    Does nothing on other systems than Linux.
    """
    if hasattr(fcntl, "F_SETSIG"):
        fcntl.fcntl(fd, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(fd, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_ASYNC)


def tie_to_parent(fd: int) -> None:
    """In the child: let the kernel end this process with its parent; exit if the parent has ended.

    Works on Linux only.
    """
    _request_kill_signal(fd)
    if select.select([fd], [], [], 0)[0]:  # the parent ended before the signal was requested
        os._exit(ORPHANED)


def _exit_when_closed(fd: int) -> None:
    select.select([fd], [], [])
    os._exit(ORPHANED)


if __name__ == "__main__":
    _become(int(sys.argv[1]), sys.argv[2:])
