"""Files and directories that survive a power cut, and file locks.

All functions may raise OSError, which `translate_os_errors` turns into an error for the user.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from driftline.engine.errors import InUse, Unavailable


@contextmanager
def translate_os_errors(what: str, path: Path, remedy: str = "") -> Iterator[None]:
    """Within this context, turn an OSError into Unavailable.

    `what`: describes the path, such as "state directory"; `remedy`: text to append to the reason.
    """
    try:
        yield
    except OSError as error:
        location = error.filename or path  # the error of a full disk has no file name
        raise Unavailable(f"{what} {location}: {error.strerror or error}{remedy}") from None


def make_directory(path: Path) -> None:
    """Create a directory and its missing parents, durably."""
    if not path.is_dir():
        make_directory(path.parent)
        path.mkdir(exist_ok=True)
        sync_directory(path.parent)


def replace_file(path: Path, data: bytes) -> None:
    """Replace a file's content in one atomic, durable step. Several processes may do so at once."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    try:
        write_at(file, data, 0)
        os.fdatasync(file)
    finally:
        os.close(file)
    os.replace(draft, path)
    sync_directory(path.parent)


def write_at(file: int, data: bytes, offset: int) -> None:
    """Write all data at an offset, even if the operating system takes only a part at a time."""
    rest = memoryview(data)
    while rest:
        written = os.pwrite(file, rest, offset)
        rest = rest[written:]
        offset += written


def sync_directory(path: Path) -> None:
    """Make the entries of a directory durable: new, renamed and removed files."""
    file = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


LOCK_POLL_S = 0.05
"""Seconds between attempts to acquire a held lock."""

_held: set[Lock] = set()
"""All locks that this process holds. Without this reference, garbage collection might release
a lock."""


class Lock:
    """File lock, held until `release` or the end of the process.

    The kernel releases the locks of a process that ends, in whatever way. `filelock` keeps them
    from passing to a program that is started with `exec`, and to a process that a user function
    forks. The empty file itself remains: only the lock matters.
    """

    def __init__(self, path: Path, in_use_text: str, *, wait_s: float = 0.0) -> None:
        """Lock the file at `path`; wait at most `wait_s` seconds for another holder to release it.

        Raises InUse with the text `in_use_text` if the lock is still held then. Raises OSError.
        """
        self._lock = FileLock(
            path,
            mode=0o644,
            thread_local=False,  # another thread may release the lock
            fallback_to_soft=False,  # a soft lock would outlive a kill -9
            poll_interval=LOCK_POLL_S,
        )
        try:
            self._lock.acquire(timeout=wait_s)
        except Timeout:
            raise InUse(in_use_text) from None
        _held.add(self)

    def release(self) -> None:
        """Release the lock. May be called again."""
        self._lock.release()
        _held.discard(self)
