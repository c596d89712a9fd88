"""The lifeline: a child process ends as soon as its parent is gone.

The parent holds the write end of a pipe, the child inherits the read end. When the parent ends, in
whatever way, the kernel closes the pipe, and the child ends at once: also while a user function
keeps its loop busy, and also if the parent ended before the child began. On Linux the kernel sends
SIGKILL, so that even a function in C that holds the interpreter's lock does not keep it alive.

`ended_in_order` is for the parent: SIGTERM and SIGHUP unwind its stack.
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
        """Close the parent's end: the child ends, if it has not yet."""
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
    """Within this context SIGTERM and SIGHUP raise SystemExit with status 128 + n."""
    asked = (signal.SIGTERM, signal.SIGHUP)

    def end(number: int, frame: FrameType | None) -> None:
        for each in asked:
            signal.signal(each, signal.SIG_IGN)  # a second signal must not interrupt the clean-up
        print(f"driftline: ended by {signal.Signals(number).name}", file=sys.stderr)
        raise SystemExit(128 + number)

    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread gets signals
        return
    before = {each: signal.signal(each, end) for each in asked}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
