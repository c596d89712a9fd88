"""Forks of user functions: a copy of the process must not go on as if it were the process.

A user function may fork, by itself or by `multiprocessing`. As long as the copy is busy in the
function it is the user's. When it comes back, by a result or an exception, it would go on with our
work for a second time. So the return of the function is watched in the copy, and ends it at once,
with a log line that names the function's line. What never comes back is left alone: it calls
`os._exit` itself, as `multiprocessing` does, or `exec`, as `subprocess` does.

In the process itself nothing is watched, and nothing costs time.
"""

from __future__ import annotations

import os
import sys
from types import FrameType

from driftline.engine.events import about, log
from driftline.engine.operators.users import line_of_caller

CAME_BACK = 71
"""Exit status of a copy that came back."""

_ENDS_ITSELF = {"multiprocessing.popen_fork"}
"""Modules whose copies never return to their caller."""

_guarded = False


def guard() -> None:
    """From now on, end each copy of this process that comes back to Driftline."""
    global _guarded
    if not _guarded:
        _guarded = True
        os.register_at_fork(after_in_child=_watch)


def leave() -> None:
    """End this copy of the process, and say so."""
    log.error(
        "a function forks, and the copy of the process (pid %d) came back from it: it is ended, as "
        "it would do the same work twice. End it in the function by os._exit(), or use "
        "multiprocessing or subprocess\n  at: %s",
        *(os.getpid(), _forked_at),
        extra=about("fork-came-back", pid=os.getpid(), line=_forked_at),
    )
    os._exit(CAME_BACK)


_forked_at = "a line that is not known"


def _watch() -> None:
    """In the copy: wait for the return of the function that our code has called."""
    global _forked_at
    called: FrameType | None = None
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not _is_ours(frame):
        if frame.f_globals.get("__name__") in _ENDS_ITSELF:
            return
        called, frame = frame, frame.f_back
    if called is None or frame is None:  # no function of ours has called it, or one without a frame
        return
    _forked_at = line_of_caller()

    def returned(frame: FrameType, event: str, argument: object) -> object:
        if event == "return":  # also by an exception, and at a yield
            sys.settrace(None)
            leave()
        return returned

    called.f_trace, called.f_trace_lines = returned, False
    sys.settrace(lambda frame, event, argument: None)


def _is_ours(frame: FrameType) -> bool:
    name = str(frame.f_globals.get("__name__"))
    return name.startswith(("driftline.engine.", "driftline.deploy.", "driftline.pipeline."))
