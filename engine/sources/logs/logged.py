"""A front's input log as a source: the records that producers sent, to be run or audited again.

Trimmed records are gone: a run over the rest has to begin from a savepoint of that time or later.
The log may be in use while it is read; records that come meanwhile may be missing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import lmdb

from driftline.engine.errors import InputError, StateMismatch, Unavailable
from driftline.engine.sources.logs.entries import record_of
from driftline.engine.sources.logs.inputlog import decode_beside, decode_entry, encode_number
from driftline.engine.sources.source import BadRecord
from driftline.engine.texts import time_in_words

INPUT_LOG = "input log"
"""How the identity of such a source begins."""


class LoggedSource:
    """The records of an input log, with their times."""

    def __init__(self, path: Path) -> None:
        self.name = path.name
        self.path = path

    def read(self, start: int) -> Iterator[tuple[int, object] | BadRecord]:
        """All records with time >= `start`.

        Raises InputError if some of them were trimmed, StateMismatch, Unavailable.
        """
        with self._opened() as env:
            about, entries = env.open_db(b"about"), env.open_db(b"entries")
            with env.begin() as txn, txn.cursor(db=entries) as cursor:
                trimmed = txn.get(b"trimmed", db=about)
                first = decode_beside(b"trimmed", trimmed, self.name) if trimmed else 0
                if start < first:
                    raise InputError(
                        self.name,
                        start,
                        f"records before {time_in_words(first)} are trimmed, as snapshots have "
                        "them: begin with --from-snapshot and a savepoint of that time or later, "
                        "which `driftline savepoint` writes",
                    )
                at_entry = cursor.set_range(encode_number(start))
                while at_entry:
                    entry = decode_entry(bytes(cursor.key()), bytes(cursor.value()), self.name)
                    yield record_of(entry, self.name)
                    at_entry = cursor.next()

    def progress(self) -> tuple[int, int] | None:
        """None: the size is unknown."""
        return None

    def identity(self) -> str:
        """A text with the path of the log."""
        return f"{INPUT_LOG} {self.path}"

    @contextmanager
    def _opened(self) -> Iterator[lmdb.Environment]:
        try:
            with lmdb.open(str(self.path), map_size=0, readonly=True, max_dbs=3) as env:
                yield env
        except lmdb.NotFoundError:
            raise StateMismatch(f"{self.path} is not an input log") from None
        except lmdb.Error as error:
            raise Unavailable(f"input log {self.path}: {error}") from None
