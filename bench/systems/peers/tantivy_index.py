"""tantivy, called in-process by its Python package, with an index on the disk.

A commit is durable when it returns; then the reader is loaded again, by hand, so that what was
committed is found at once. One thread indexes: with a commit a document, more only have more to
wait for. 15 MB for it, the least there is: with 128 MB a commit took longer. It merges by its own
policy. Ids and texts are stored, all positions are there, words are lower case, as Driftline has
them. Best first by its own BM25; all that match are not counted, as they are by Driftline, so it
may leave out what cannot be among the best.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import tantivy

from driftline.bench.measuring.corpus import Documents
from driftline.bench.measuring.load import LIMIT
from driftline.bench.measuring.queries import Query
from driftline.bench.systems.peers.peer import bytes_in

HEAP_BYTES = 15_000_000


class Tantivy:
    """An index in a directory."""

    def __init__(self, directory: Path, commit_every_s: float = 0.0) -> None:
        self.commit_every_s = commit_every_s
        self._path = directory / "index"
        self._path.mkdir()
        builder = tantivy.SchemaBuilder()
        builder.add_text_field("id", stored=True, tokenizer_name="raw", index_option="basic")
        builder.add_text_field("text", stored=True, index_option="position")
        self._index = tantivy.Index(builder.build(), path=str(self._path))
        self._index.config_reader(reload_policy="manual")
        self._writer = self._index.writer(heap_size=HEAP_BYTES, num_threads=1)

    def write(self, documents: Documents) -> None:
        """See Peer."""
        for id, text in documents:
            self._writer.add_document(tantivy.Document(id=id, text=text))
        self._writer.commit()
        self._index.reload()

    def asker(self) -> Callable[[Query], list[str]]:
        """See Peer."""

        def ask(query: Query) -> list[str]:
            searcher = self._index.searcher()
            found = searcher.search(
                self._index.parse_query(written(query), ["text"]), LIMIT, count=False
            )
            return [str(searcher.doc(address).get_first("id")) for _, address in found.hits]

        return ask

    def figures(self) -> dict[str, float]:
        """See Peer."""
        return {
            "disk_bytes": bytes_in(self._path),
            "segments": self._index.searcher().num_segments,
        }

    def close(self) -> None:
        """See Peer."""
        self._writer.wait_merging_threads()


def written(query: Query) -> str:
    """A query in the language of tantivy."""
    if query.kind == "phrase":
        return '"' + " ".join(query.words) + '"'
    if query.kind.startswith("union"):
        return " OR ".join(query.words)
    return " ".join(f"+{word}" for word in query.words)
