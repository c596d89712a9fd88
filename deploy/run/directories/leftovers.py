"""Removes the leftovers of killed runs: folders of sockets, and drafts of files.

The path of a folder of sockets is written into the state directory before the folder is made, so
the next run finds it. A run keeps a file in its folder locked, and so does a short command, which
has no state directory; so the next start of either removes the folders of all that live no more.
Precondition of all functions that are given a state directory: the caller has locked it.
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
from time import time

from driftline.deploy.host.signals import Signals
from driftline.engine.errors import Unavailable
from driftline.engine.locks import Lock

_PREFIX = "driftline-"

_LOCK = "lock"
"""The file in a folder of sockets that its run keeps locked."""

YOUNG_S = 60.0
"""Seconds for which a folder is left though it is not locked: a run may be about to lock it."""

_DRAFT = re.compile(r"\..+\.(\d+)")
"""The names of the drafts of `engine.durable.replace_file`: .NAME.PID"""

_EXITING = 0x4
"""Linux's flag PF_EXITING: a process ends, or has ended and its parent has not been told."""


@contextmanager
def socket_folder(state: Path) -> Iterator[Path]:
    """Make a folder with a short path for the sockets of a run; remove that of the run before."""
    note = state / "sockets"
    with suppress(OSError, ValueError):  # such as bytes that are no text
        before = Path(note.read_text())
        if before.name.startswith(_PREFIX):
            shutil.rmtree(before, ignore_errors=True)
    folder = _name()
    note.write_text(str(folder))
    try:
        with _made(folder):
            yield folder
    finally:
        note.unlink(missing_ok=True)


@contextmanager
def short_folder() -> Iterator[Path]:
    """Make a folder for the sockets of a short command; SIGTERM and SIGHUP remove it, too."""
    folder = _name()
    with Signals(), _made(folder):
        yield folder


def _name() -> Path:
    return Path(tempfile.gettempdir()) / f"{_PREFIX}{secrets.token_hex(6)}"


@contextmanager
def _made(folder: Path) -> Iterator[None]:
    _remove_deserted(folder.parent)
    folder.mkdir(mode=0o700)
    lock = Lock(folder / _LOCK, f"another process has locked {folder}")
    try:
        yield
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        lock.release()


def _remove_deserted(parent: Path) -> None:
    """Remove our folders of runs and commands that live no more.

    A folder without a lock is left: its run has just begun, or is of an earlier version.
    """
    for folder in parent.glob(f"{_PREFIX}*"):
        with suppress(OSError, Unavailable):
            is_ours = re.fullmatch(rf"{_PREFIX}[0-9a-f]{{12}}", folder.name) is not None
            about = folder.lstat()
            is_old = time() - about.st_mtime > YOUNG_S
            if is_ours and is_old and about.st_uid == os.getuid() and (folder / _LOCK).is_file():
                lock = Lock(folder / _LOCK, "its run lives")
                shutil.rmtree(folder, ignore_errors=True)
                lock.release()


def clear_drafts(*directories: Path) -> None:
    """Remove the drafts of processes that have ended.

    Precondition: the processes of earlier runs have ended (`claims.wait_for_others`), which may
    take longer than the end of their command.
    """
    for directory in directories:
        for path in directory.glob(".*"):
            match = _DRAFT.fullmatch(path.name)
            if match and path.is_file() and not _lives(int(match[1])):
                path.unlink(missing_ok=True)


def _lives(pid: int) -> bool:
    """Whether there is such a process, and it is not on its way out, without its locks already."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    with suppress(OSError, ValueError, IndexError):  # a system without /proc does not say more
        flags = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[6]
        return not int(flags) & _EXITING
    return True
