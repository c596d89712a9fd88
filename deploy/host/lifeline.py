"""The lifeline: no process of a run outlives the one that started it, not even by a moment.

The parent holds the write end of a pipe, the child inherits the read end. When the parent is gone,
however it went, the kernel closes the pipe, and the child ends at once: also while a user function
keeps its loop busy, and also if the parent went before the child had begun. Where the kernel can
tell by a signal (Linux), that is so even while a function in C holds the interpreter's lock.

`ended_in_order` is for the parent itself: a signal that asks it to end is an exit like any other.
"""

from __future__ import annotations

import fcntl
import os
import select
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

ORPHANED = 70
"""Exit status of a child whose parent is gone; nobody is there to see it."""


class Lifeline:
    """The parent's end of a child's line. The child is started with `fd` among what it inherits.

    Each child has a line of its own: whom the kernel tells belongs to the pipe, not the process.
    """

    def __init__(self) -> None:
        self.fd, self._held = os.pipe()

    def started(self) -> None:
        """The child has its end now."""
        os.close(self.fd)

    def cut(self) -> None:
        """Let go: a child that is still there ends."""
        os.close(self._held)


def hold_on(fd: int) -> None:
    """In the child: end this process as soon as the parent is gone."""
    if hasattr(fcntl, "F_SETSIG"):
        fcntl.fcntl(fd, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(fd, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_ASYNC)
    threading.Thread(target=_wait, args=(fd,), daemon=True).start()


def _wait(fd: int) -> None:
    select.select([fd], [], [])
    os._exit(ORPHANED)


@contextmanager
def ended_in_order() -> Iterator[None]:
    """While this lasts, SIGTERM and SIGHUP unwind the stack: exit status 128 + n."""
    asked = (signal.SIGTERM, signal.SIGHUP)

    def end(number: int, frame: FrameType | None) -> None:
        for each in asked:
            signal.signal(each, signal.SIG_IGN)  # once is enough: the next would cut this short
        print(f"driftline: ended by {signal.Signals(number).name}", file=sys.stderr)
        raise SystemExit(128 + number)

    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread is told of signals
        return
    before = {each: signal.signal(each, end) for each in asked}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
