"""Removes the socket folders and draft files of runs that were killed.

The path of a socket folder is written into the state directory before the folder is made, so the
next run finds it. Precondition of all functions with a state directory as an argument: the caller
has locked it.
"""

from __future__ import annotations

import re
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from driftline.deploy.runtime.signals import Signals

_PREFIX = "driftline-"

_DRAFT = re.compile(r"\..+\.\d+")
"""Names of the drafts of `engine.durable.replace_file`: .NAME.PID"""


@contextmanager
def socket_folder(state: Path) -> Iterator[Path]:
    """Make a folder with a short path for a run's sockets, and remove it at the end.

    Also removes the folder of the previous run, if that was killed.
    """
    path_file = state / "sockets"
    with suppress(OSError, ValueError):  # ValueError: bytes that are not text
        previous = Path(path_file.read_text())
        if previous.name.startswith(_PREFIX):
            shutil.rmtree(previous, ignore_errors=True)
    folder = Path(tempfile.gettempdir()) / f"{_PREFIX}{secrets.token_hex(6)}"
    path_file.write_text(str(folder))
    try:
        folder.mkdir(mode=0o700)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        path_file.unlink(missing_ok=True)


@contextmanager
def short_folder() -> Iterator[Path]:
    """Make a folder for a command's sockets; remove it at the end, or at SIGTERM or SIGHUP."""
    with Signals(), tempfile.TemporaryDirectory(prefix=_PREFIX) as folder:
        yield Path(folder)


def clear_drafts(*directories: Path) -> None:
    """Remove drafts that killed processes left.

    Precondition: all processes of earlier runs have ended (`claims.wait_for_others`); they may
    outlive their command. The process id in a draft's name does not show whether its writer is
    alive: a killed process keeps its id until its parent reaps it, and another process may get it.
    """
    for directory in directories:
        for path in directory.glob(".*"):
            if _DRAFT.fullmatch(path.name) and path.is_file():
                path.unlink(missing_ok=True)
