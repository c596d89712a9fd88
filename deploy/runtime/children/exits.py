"""Exits: a file that can be read as soon as a child has ended, so that a loop wakes up at once.

Takes the ids of children. Gives one file for all of them, to be polled with whatever else the loop
waits for, and `news`. A child that has ended is still to be waited for by its parent. Where the
kernel has no such files, there is never any news: then children are looked at now and then.
"""

from __future__ import annotations

import os
import select
from contextlib import suppress


class Exits:
    """The exits of the children of a cluster."""

    def __init__(self) -> None:
        self.news = False
        """Whether a child has ended; whoever looks after the children clears it."""
        self._poll = select.epoll() if hasattr(os, "pidfd_open") else None
        self._files: set[int] = set()

    def fileno(self) -> int | None:
        """The file to be polled for reading; None: there is none."""
        return None if self._poll is None else self._poll.fileno()

    def watch(self, pid: int) -> None:
        """Watch a child. Precondition: nobody has waited for it yet."""
        if self._poll is None:
            return
        with suppress(OSError):  # an old kernel, or too many files: it is looked at now and then
            file = os.pidfd_open(pid)
            self._files.add(file)
            self._poll.register(file, select.EPOLLIN)

    def take(self) -> None:
        """Note who has ended: the file can be read. It cannot be any more, until the next exit."""
        if self._poll is None:
            return
        for file, _ in self._poll.poll(0):
            self.news = True
            self._files.remove(file)
            self._poll.unregister(file)
            os.close(file)

    def close(self) -> None:
        """Watch nobody any more. May be called again."""
        if self._poll is not None:
            self._poll.close()
        for file in self._files:
            os.close(file)
        self._files.clear()
