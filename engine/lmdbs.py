"""LMDB as everybody here opens it, and what its errors mean: damage, or something to try again.

LMDB maps its file into memory: a page that the file has lost would end the process with SIGBUS.
Therefore a file that is shorter than its pages is made as long as they are before anything is read:
a lost page is then empty, which LMDB or a checksum notices. (A file may be a little shorter in good
order, too: pages that were given up before they were written.)

Nor has LMDB checksums of its own: one changed bit in the pages that name the roots may bring back
an older state, whole and wrong. Therefore every transaction notes its number among what it writes
(`seal`), and `every_row` compares it, and both root pages, which differ by one transaction.
"""

from __future__ import annotations

import os
import struct
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
"""What no repetition would mend. Everything else may pass."""

DATA = "data.mdb"


@contextmanager
def reported(what: str, damaged: type[DriftlineError]) -> Iterator[None]:
    """Tell LMDB's errors as ours: `damaged`, or Unavailable for what may be tried again."""
    try:
        yield
    except DAMAGE as error:
        raise damaged(f"{what} is damaged: {error}") from None
    except (lmdb.Error, OSError) as error:
        raise Unavailable(f"{what}: {error}") from None


def open_environment(path: Path, map_size: int, max_dbs: int = 0) -> lmdb.Environment:
    """The environment in a directory, which is made durably if need be.

    Raises what LMDB and the operating system raise.
    """
    make_directory(path)
    env = lmdb.open(str(path), map_size=map_size, max_dbs=max_dbs)
    try:
        pages = env.info()["last_pgno"] + 1
        length = pages * env.stat()["psize"]
        if (path / DATA).stat().st_size < length:
            os.truncate(path / DATA, length)
        sync_directory(path)
    except BaseException:
        env.close()
        raise
    return env


TRANSACTION = b"transaction"
"""Its key in the database ``about``."""

_META = struct.Struct("<136xQ")
"""A root page, as far as the number of its transaction: header, sizes, two databases, last page."""


def seal(txn: lmdb.Transaction, about: lmdb._Database) -> None:
    """Note the number of a transaction that writes, in the database `about`."""
    txn.put(TRANSACTION, txn.id().to_bytes(8, "big"), db=about)


def check_roots(path: Path, page_size: int) -> None:
    """Raises CorruptedError if the two root pages do not follow each other."""
    with (path / DATA).open("rb") as file:
        data = file.read(2 * page_size)
    numbers = [_META.unpack_from(data, 8 + at)[0] for at in (0, page_size)]
    if max(numbers) > 1 and max(numbers) - min(numbers) != 1:
        raise lmdb.CorruptedError("its roots are of transactions that do not follow each other")


def every_row(path: Path, *names: bytes) -> Iterator[tuple[bytes, bytes, bytes]]:
    """(name, key, value) of all rows of some databases; nothing is changed.

    Raises what LMDB raises, CorruptedError also where there are not as many as LMDB says.
    """
    with lmdb.open(str(path), map_size=0, readonly=True, max_dbs=8) as env:
        check_roots(path, env.stat()["psize"])
        if not env.info()["last_txnid"]:
            return  # it was made, and nothing was written yet
        opened = {name: env.open_db(name, create=False) for name in names}
        with env.begin() as txn:
            last = env.info()["last_txnid"].to_bytes(8, "big")
            if b"about" in opened and txn.get(TRANSACTION, db=opened[b"about"]) != last:
                raise lmdb.CorruptedError("its roots are those of an older transaction")
            for name, db in opened.items():
                rows = 0
                with txn.cursor(db) as cursor:
                    for key, value in cursor.iternext():
                        rows += 1
                        yield name, bytes(key), bytes(value)
                if rows != txn.stat(db)["entries"]:
                    raise lmdb.CorruptedError(f"{rows} of {txn.stat(db)['entries']} rows are left")
