"""Opening of LMDB environments, and their errors.

LMDB maps its file into memory: reading a page beyond the end of the file ends the process with
SIGBUS. So `open_environment` extends a file that is too short for the pages that LMDB has counted.
A lost page then reads as zeros, which LMDB or a checksum detects. (An undamaged file may be a
little too short, if its last pages were freed before they were written.)

LMDB has no checksums, so the rows contain their own. A damaged page may still end the process that
reads it, so `driftline verify` and the start of a run read stores in a child process.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import lmdb

from driftline.engine.durable import make_directory, sync_directory
from driftline.engine.errors import DriftlineError, Unavailable

DAMAGE = (
    lmdb.BadValsizeError,
    lmdb.CorruptedError,
    lmdb.CursorFullError,
    lmdb.IncompatibleError,
    lmdb.InvalidError,
    lmdb.PageNotFoundError,
    lmdb.VersionMismatchError,
)
"""Errors that mean damage: a retry cannot help. It may help after other errors of LMDB, except
PanicError."""

DATA, LOCKS = "data.mdb", "lock.mdb"

LOCKS_BYTES = 8192
"""Size of the lock file: a header of 128 bytes, and 64 bytes for each of 126 readers."""


def reason(error: lmdb.Error | OSError) -> str:
    """Return the reason in an error, without the function's name and the error's number."""
    if isinstance(error, OSError):
        return error.strerror or str(error)
    text = str(error).partition(": ")[2] or str(error)
    # LMDB also reports EIO if a write was incomplete because the disk is full.
    if text == os.strerror(errno.EIO):
        return f"{os.strerror(errno.ENOSPC)}, or the disk fails ({text})"
    return text


@contextmanager
def translate_lmdb_errors(what: str, damaged: type[DriftlineError]) -> Iterator[None]:
    """Raise errors of LMDB as `damaged` if they mean damage, else as Unavailable.

    PanicError passes unchanged: LMDB does not know what is on the disk, and the process must exit.
    `what`: the name of the environment, for the text of the error.
    """
    try:
        yield
    except DAMAGE as error:
        raise damaged(f"{what} is damaged: {error}") from None
    except lmdb.PanicError:  # only a new process can write the environment again
        raise
    except (lmdb.Error, OSError) as error:
        raise Unavailable(f"{what}: {reason(error)}") from None


def open_environment(path: Path, map_size: int, max_dbs: int = 0) -> lmdb.Environment:
    """Open the environment in a directory; create the directory durably if it is missing.

    `map_size`: address space in bytes. Raises lmdb.Error and OSError, so call it within
    `translate_lmdb_errors`.
    """
    make_directory(path)
    _allocate(path / LOCKS)
    env = lmdb.open(str(path), map_size=map_size, max_dbs=max_dbs)
    try:
        length = _used_bytes(env)
        if (path / DATA).stat().st_size < length:
            os.truncate(path / DATA, length)
        sync_directory(path)
    except BaseException:
        env.close()
        raise
    return env


def _allocate(locks: Path) -> None:
    """Reserve disk space for LMDB's lock file: LMDB writes it through a memory map, which on a full
    disk would end the process with SIGBUS."""
    file = os.open(locks, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        os.posix_fallocate(file, 0, LOCKS_BYTES)
    finally:
        os.close(file)


def _used_bytes(env: lmdb.Environment) -> int:
    """Return the size of all pages ever used, in bytes."""
    pages: int = env.info()["last_pgno"] + 1
    return pages * env.stat()["psize"]


def iterate_rows(path: Path, *names: bytes) -> Iterator[tuple[bytes, bytes, bytes]]:
    """Yield (name of the database, key, value) of each row of these databases.

    Opens the environment read-only. Raises lmdb.Error, OSError.
    """
    with lmdb.open(str(path), map_size=0, readonly=True, max_dbs=8) as env:
        if not env.info()["last_txnid"]:
            return  # nothing was written to the environment yet
        opened = {name: env.open_db(name, create=False) for name in names}
        with env.begin() as txn:
            for name, db in opened.items():
                with txn.cursor(db) as cursor:
                    for key, value in cursor.iternext():
                        yield name, bytes(key), bytes(value)
