"""Removes the leftovers of killed runs: folders of sockets, and drafts of files.

The path of a folder of sockets is written into the state directory before the folder is made, so
the next run finds it. Precondition of all functions: the caller has locked the state directory.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_PREFIX = "driftline-"

_DRAFT = re.compile(r"\..+\.(\d+)")
"""The names of the drafts of `engine.durable.replace_file`: .NAME.PID"""


@contextmanager
def socket_folder(state: Path) -> Iterator[Path]:
    """Make a folder with a short path for the sockets of a run; remove that of the run before."""
    note = state / "sockets"
    with suppress(OSError):
        before = Path(note.read_text())
        if before.name.startswith(_PREFIX):
            shutil.rmtree(before, ignore_errors=True)
    folder = Path(tempfile.gettempdir()) / f"{_PREFIX}{secrets.token_hex(6)}"
    note.write_text(str(folder))
    folder.mkdir(mode=0o700)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        note.unlink(missing_ok=True)


def clear_drafts(*directories: Path) -> None:
    """Remove the drafts of processes that have ended."""
    for directory in directories:
        for path in directory.glob(".*"):
            match = _DRAFT.fullmatch(path.name)
            if match and path.is_file() and not _lives(int(match[1])):
                path.unlink(missing_ok=True)


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True
