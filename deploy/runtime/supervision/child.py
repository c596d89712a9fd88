"""Child processes: they import the same Driftline as their parent, and nothing from the working
directory.

A child executes this file: ``python -P .../child.py MODULE ARGUMENTS``. Thus a user's file named
`datetime.py` or `zmq.py` never replaces the module of that name; and the folder of the flow is the
last one that Python searches (`engine.flow.loading`).
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from types import FrameType

_PACKAGE = Path(os.path.abspath(__file__)).parents[3]
"""The folder `driftline`. Links are not resolved, because its subfolders may be links."""

_ROOT = str(_PACKAGE.parent)


def command(module: str, *arguments: object) -> list[str]:
    """Return the command line that runs a module of Driftline in a child process."""
    return [sys.executable, "-P", __file__, module, *map(str, arguments)]


def environment() -> dict[str, str]:
    """Return the environment of a child: string hashes are the same in every process and replay."""
    return {"PYTHONHASHSEED": "0", **os.environ}


def name_process(name: str) -> None:
    """Let `top` and `ps -o comm` show the first 15 bytes of a name for this process."""
    Path("/proc/self/comm").write_text(name)


def hide_checkout() -> None:
    """Remove a checkout of Driftline from Python's search path, so that a flow may import its own
    `engine.py` or `index`. Precondition: `driftline` has been imported."""
    if (_PACKAGE / "engine").is_symlink():
        sys.path[:] = [path for path in sys.path if os.path.abspath(path) != _ROOT]


TERMINATION_SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
"""Signals that children ignore, because the command decides when they end; a new child starts with
them blocked."""

_PYTHON_HANDLERS = (signal.SIG_DFL, signal.SIG_IGN, signal.default_int_handler)


def _ignore_signal(number: int, frame: FrameType | None) -> None:
    """Ignore a signal such as that of Ctrl-C, which the whole process group receives."""


def _restore_default_handlers() -> None:
    """Restore the default handlers in a process that a user function forks, so that the function
    can end that process with SIGTERM, for example."""
    for number in TERMINATION_SIGNALS:
        if signal.getsignal(number) is _ignore_signal:
            signal.signal(number, signal.SIG_DFL)
    _unblock_signals()


def _block_signals() -> None:
    """Block the signals before a fork: the forked process first restores its handlers."""
    signal.pthread_sigmask(signal.SIG_BLOCK, TERMINATION_SIGNALS)


def _unblock_signals() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, TERMINATION_SIGNALS)


def _run() -> None:
    # First of all, because the signals are blocked until the handlers are set. SIG_IGN would not
    # do: programs that a user function starts would inherit it.
    for number in TERMINATION_SIGNALS:
        if signal.getsignal(number) in _PYTHON_HANDLERS:
            signal.signal(number, _ignore_signal)
    _unblock_signals()
    os.register_at_fork(
        before=_block_signals,
        after_in_parent=_unblock_signals,
        after_in_child=_restore_default_handlers,
    )

    from runpy import run_module

    sys.path.insert(0, _ROOT)
    import driftline.engine  # noqa: F401  # from here on its folders are found without the path

    sys.path.remove(_ROOT)
    hide_checkout()
    sys.argv[:] = sys.argv[1:]
    run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _run()
