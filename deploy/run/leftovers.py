"""Leftovers of runs that were killed: the next run of the same directories clears them.

A folder for sockets is noted in the state directory before it is made, so none is ever forgotten.
Whoever calls this holds the state directory for itself.
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
"""What `engine.durable.replace_file` writes before it replaces: .NAME.PID"""


@contextmanager
def socket_folder(state: Path) -> Iterator[Path]:
    """A new folder for the sockets of a run, with a short path; the one before is removed."""
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
    """Remove what processes that are gone were about to put in place of a file."""
    for directory in directories:
        for path in directory.glob(".*"):
            found = _DRAFT.fullmatch(path.name)
            if found and path.is_file() and not _lives(int(found[1])):
                path.unlink(missing_ok=True)


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True
