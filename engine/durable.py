"""Files and directories that survive a power cut.

All functions raise OSError, which `reported` turns into an error for people.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from driftline.engine.errors import Unavailable


@contextmanager
def reported(what: str, path: Path, remedy: str = "") -> Iterator[None]:
    """Raise Unavailable for an error of the operating system.

    `what`: what is at the path, as in "state directory"; `remedy`: what helps, after the reason.
    """
    try:
        yield
    except OSError as error:
        where = error.filename or path  # a full disk names none
        raise Unavailable(f"{what} {where}: {error.strerror or error}{remedy}") from None


def make_directory(path: Path) -> None:
    """Make a directory and its missing parents, durably."""
    if not path.is_dir():
        make_directory(path.parent)
        path.mkdir(exist_ok=True)
        sync_directory(path.parent)


def replace_file(path: Path, data: bytes) -> None:
    """Replace a file's content in one atomic, durable step, even while other processes do, too."""
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
    """Make the names in a directory durable."""
    file = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
