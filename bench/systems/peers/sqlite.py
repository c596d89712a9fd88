"""SQLite FTS5, called in-process.

In WAL mode with `synchronous=FULL`: each commit is durable when it returns, as a write of Driftline
is when it is acknowledged. Readers have a connection of their own and go on beside a commit. 64 MB
of page cache and memory-mapped files, so that what is measured is the index and not the disk; words
as Driftline has them (`unicode61` without removing diacritics); documents are stored, too, and all
positions are there, for phrases. Best first by its own BM25.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

from driftline.bench.measuring.corpus import Documents
from driftline.bench.measuring.load import LIMIT
from driftline.bench.measuring.queries import Query
from driftline.bench.systems.peers.peer import bytes_in

_SEARCH = "SELECT id FROM documents WHERE documents MATCH ? ORDER BY rank LIMIT ?"


class Fts5:
    """A database in a directory."""

    commit_every_s = 0.0

    def __init__(self, directory: Path) -> None:
        self._path = directory / "documents.sqlite"
        self._connections: list[sqlite3.Connection] = []
        self._writer = self._connect()
        self._writer.execute(
            "CREATE VIRTUAL TABLE documents USING fts5(id UNINDEXED, text, "
            "tokenize = 'unicode61 remove_diacritics 0')"
        )

    def write(self, documents: Documents) -> None:
        """See Peer."""
        self._writer.execute("BEGIN IMMEDIATE")
        self._writer.executemany("INSERT INTO documents (id, text) VALUES (?, ?)", documents)
        self._writer.execute("COMMIT")

    def asker(self) -> Callable[[Query], list[str]]:
        """See Peer."""
        connection = self._connect()

        def ask(query: Query) -> list[str]:
            rows = connection.execute(_SEARCH, (written(query), LIMIT))
            return [id for (id,) in rows]

        return ask

    def figures(self) -> dict[str, float]:
        """See Peer."""
        return {"disk_bytes": bytes_in(self._path.parent)}

    def close(self) -> None:
        """See Peer."""
        for connection in self._connections:
            connection.close()

    def _connect(self) -> sqlite3.Connection:
        found = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
        for setting in (
            *("journal_mode = WAL", "synchronous = FULL", "cache_size = -65536"),
            *("mmap_size = 1073741824", "temp_store = MEMORY", "busy_timeout = 10000"),
        ):
            found.execute(f"PRAGMA {setting}")
        self._connections.append(found)
        return found


def written(query: Query) -> str:
    """A query in the language of FTS5."""
    if query.kind == "phrase":
        return '"' + " ".join(query.words) + '"'
    return (" OR " if query.kind.startswith("union") else " AND ").join(
        f'"{word}"' for word in query.words
    )
