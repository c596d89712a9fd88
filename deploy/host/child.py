"""Child processes: they import the same Driftline as their parent, and nothing from the working
directory.

A child executes this file: ``python -P .../child.py MODULE ARGUMENTS``. So a user's file named
`datetime.py` or `zmq.py` is never imported in place of the module of that name; and the folder of
the flow is the last one that Python searches (`engine.flow.loading`).
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

_PACKAGE = Path(os.path.abspath(__file__)).parents[2]
"""The folder `driftline`. It is not resolved, as the folders in it may be links."""

_ROOT = str(_PACKAGE.parent)


def command(module: str, *arguments: object) -> list[str]:
    """The command line that runs a module of ours in a process of its own."""
    return [sys.executable, "-P", __file__, module, *map(str, arguments)]


def environment() -> dict[str, str]:
    """The environment of a child: hashes of texts are the same in every process and replay."""
    return {"PYTHONHASHSEED": "0", **os.environ}


def hide_checkout() -> None:
    """Remove a checkout of Driftline from Python's search path, so that a flow may import its own
    `engine.py` or `index`. Precondition: `driftline` has been imported."""
    if (_PACKAGE / "engine").is_symlink():
        sys.path[:] = [path for path in sys.path if os.path.abspath(path) != _ROOT]


def _run() -> None:
    # First of all: a signal for the whole group of processes is for the command, which decides when
    # its children end. A handler, as programs that a function starts must not inherit SIG_IGN.
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        if signal.getsignal(number) in (signal.SIG_DFL, signal.SIG_IGN):
            signal.signal(number, lambda number, frame: None)

    from runpy import run_module

    sys.path.insert(0, _ROOT)
    import driftline.engine  # noqa: F401  # from here on its folders are found without the path

    sys.path.remove(_ROOT)
    hide_checkout()
    sys.argv[:] = sys.argv[1:]
    run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _run()
