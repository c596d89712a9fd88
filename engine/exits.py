"""Keeps user code from ending the process of a command without a word.

`sys.exit` is an exception like others. `os._exit` ends the process at once, also with status 0: so
in place of it, while user code runs in a command, an exception is raised.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn


class EndsProcess(SystemExit):
    """User code has called `os._exit`."""


@contextmanager
def no_exit() -> Iterator[None]:
    """Within this context `os._exit` raises EndsProcess in this thread; elsewhere, and in copies of
    this process, it does what it always does."""
    ends = os._exit
    here: tuple[int, int] | None = (os.getpid(), threading.get_ident())

    def refused(status: int) -> NoReturn:
        if here != (os.getpid(), threading.get_ident()):
            ends(status)
        raise EndsProcess(f"os._exit({status})")

    vars(os)["_exit"] = refused
    try:
        yield
    finally:
        vars(os)["_exit"] = ends
        here = None  # others may have kept it
