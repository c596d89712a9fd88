"""How a process of ours is started: with the same Driftline, and nothing of the working directory.

This file is what such a process executes: ``python -P .../child.py MODULE ARGUMENTS``. A file of
the user's named `datetime.py` or `zmq.py` is then taken for nothing else, whatever folder the
command was given in; the folder of a flow comes behind all others (`engine.flow.loading`).
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

_PACKAGE = Path(os.path.abspath(__file__)).parents[2]
"""The folder `driftline`; not resolved, as the folders in it may be links."""

_ROOT = str(_PACKAGE.parent)


def command(module: str, *arguments: object) -> list[str]:
    """What to execute to run a module of ours in a process of its own."""
    return [sys.executable, "-P", __file__, module, *map(str, arguments)]


def environment() -> dict[str, str]:
    """In which environment: hashes of texts are the same in every process and replay."""
    return {"PYTHONHASHSEED": "0", **os.environ}


def hide_checkout() -> None:
    """Precondition: `driftline` is imported. Then a checkout need not be among the paths: a flow
    may have an `engine.py` or an `index` of its own."""
    if (_PACKAGE / "engine").is_symlink():
        sys.path[:] = [path for path in sys.path if os.path.abspath(path) != _ROOT]


def _run() -> None:
    from runpy import run_module

    sys.path.insert(0, _ROOT)
    import driftline.engine  # noqa: F401  # from here on its folders are found without the path

    sys.path.remove(_ROOT)
    hide_checkout()
    sys.argv[:] = sys.argv[1:]
    run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _run()
