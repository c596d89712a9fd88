"""Peers of a service: search libraries under the same load, each in its own process.

The load generator calls a peer in the same process, without network or HTTP, which is the best case
for the peer. One thread writes and another one queries, so a commit delays a query only if the
library makes the query wait. Both threads follow their schedules. As in the measurement of
Driftline, the writer queries for the word that only the new document contains. The documents and
the maximum number of hits are the same, too. All ids are new: a peer only inserts documents, while
Driftline can also replace existing ones.

This module is also the entry point of a peer's process; a separate process shows the peer's memory.
Arguments: NAME and the load file. The process prints the measurements as JSON.
"""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter, sleep
from typing import Protocol

import psutil

from driftline.bench.measuring.corpus import Documents
from driftline.bench.measuring.load import HITS_MAX, DocumentArrival, DrawnQuery, Load, Measurements
from driftline.bench.measuring.loops import without_gc_pauses
from driftline.bench.measuring.meter import percentiles
from driftline.bench.systems.service import MIB
from driftline.deploy.runtime.supervision import child

BULK = 1000
"""Documents per commit while the initial documents are inserted."""

HEAP_BYTES = 15_000_000
"""Memory of tantivy's writer: the minimum that tantivy accepts. Commits took longer with 128 MB."""

EXTRA_TIMEOUT_S = 300.0
"""Timeout of a peer in seconds, in addition to the duration of the load; a peer may fall behind."""


class Peer(Protocol):
    """A search library under measurement, with its files in a directory."""

    commit_every_s: float
    """Interval of commits in seconds; a commit contains all documents that arrived in it. 0: one
    commit per document."""

    def write(self, documents: Documents) -> None:
        """Insert documents. When it returns, they are durable and searchable."""

    def open_searcher(self) -> Callable[[DrawnQuery], list[str]]:
        """Return a function from a query to the ids of its first hits; one thread may use it."""

    def close(self) -> None:
        """Close the peer."""


class Fts5:
    """SQLite FTS5, in WAL mode with `synchronous=FULL`.

    A commit is durable when it returns, like an acknowledged write of Driftline. Readers have their
    own connection and run concurrently with commits. 64 MB of page cache and memory-mapped files
    keep the disk out of the measurement. Words are tokenized as in Driftline (`unicode61`, keeping
    diacritics). The index stores the documents, and the positions of all words, for phrases.
    FTS5 ranks hits by its own BM25.
    """

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

    def open_searcher(self) -> Callable[[DrawnQuery], list[str]]:
        """See Peer."""
        connection = self._connect()
        select = "SELECT id FROM documents WHERE documents MATCH ? ORDER BY rank LIMIT ?"

        def search(query: DrawnQuery) -> list[str]:
            rows = connection.execute(select, (query.text(" AND ", '"{}"'.format), HITS_MAX))
            return [id for (id,) in rows]

        return search

    def close(self) -> None:
        """See Peer."""
        for connection in self._connections:
            connection.close()

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
        for setting in (
            *("journal_mode = WAL", "synchronous = FULL", "cache_size = -65536"),
            *("mmap_size = 1073741824", "temp_store = MEMORY", "busy_timeout = 10000"),
        ):
            connection.execute(f"PRAGMA {setting}")
        self._connections.append(connection)
        return connection


class Tantivy:
    """tantivy, with an index on disk.

    A commit is durable when it returns; then the reader is reloaded explicitly, so that committed
    documents are searchable at once. One thread indexes: with one commit per document, more threads
    would only add waiting. Merging follows the library's own policy. The index stores ids, texts
    and all positions, and words are lower case, as in Driftline. tantivy ranks hits by its own
    BM25. Unlike Driftline, tantivy does not count all matches, so it may skip documents that cannot
    be among the best.
    """

    def __init__(self, directory: Path, commit_every_s: float = 0.0) -> None:
        import tantivy

        self.commit_every_s = commit_every_s
        path = directory / "index"
        path.mkdir()
        builder = tantivy.SchemaBuilder()
        builder.add_text_field("id", stored=True, tokenizer_name="raw", index_option="basic")
        builder.add_text_field("text", stored=True, index_option="position")
        self._document = tantivy.Document
        self._index = tantivy.Index(builder.build(), path=str(path))
        self._index.config_reader(reload_policy="manual")
        self._writer = self._index.writer(heap_size=HEAP_BYTES, num_threads=1)

    def write(self, documents: Documents) -> None:
        """See Peer."""
        for id, text in documents:
            self._writer.add_document(self._document(id=id, text=text))
        self._writer.commit()
        self._index.reload()

    def open_searcher(self) -> Callable[[DrawnQuery], list[str]]:
        """See Peer."""

        def search(query: DrawnQuery) -> list[str]:
            searcher = self._index.searcher()
            text = query.text(format_word=str if query.is_union else "+{}".format)
            result = searcher.search(self._index.parse_query(text, ["text"]), HITS_MAX, count=False)
            return [str(searcher.doc(address).get_first("id")) for _, address in result.hits]

        return search

    def close(self) -> None:
        """See Peer."""
        self._writer.wait_merging_threads()


PEERS: dict[str, Callable[[Path], Peer]] = {
    "tantivy": Tantivy,
    "tantivy-100ms": partial(Tantivy, commit_every_s=0.1),
    "sqlite-fts5": Fts5,
}


def measure_peer(name: str, load: Load) -> Measurements:
    """Measure a peer in a separate process; if that fails, `Measurements.skipped` says why."""
    if name.startswith("tantivy") and find_spec("tantivy") is None:
        return Measurements(skipped="not installed: pip install 'driftline[bench]'")
    with TemporaryDirectory(prefix="driftline-bench-") as directory:
        file = Path(directory) / "load.json"
        load.write(file)
        try:
            done = subprocess.run(
                child.command("driftline.bench.systems.peers", name, file),
                stdout=subprocess.PIPE,
                env=child.environment(),
                timeout=load.last_due_s + EXTRA_TIMEOUT_S,
                text=True,
            )
        except subprocess.TimeoutExpired:
            return Measurements(
                skipped=f"did not finish within {EXTRA_TIMEOUT_S:g} s after the load"
            )
    if done.returncode:
        return Measurements(skipped=f"exited with status {done.returncode}; see its messages above")
    return Measurements.from_json(done.stdout)


def observe(peer: Peer, load: Load) -> Measurements:
    """Insert the initial documents into a peer, then run the load on it."""
    observed = Measurements()
    documents = load.documents
    start = perf_counter()
    for index in range(0, len(documents), BULK):
        peer.write(documents[index : index + BULK])
    if documents:
        observed.fill_per_s = len(documents) / (perf_counter() - start)
    with without_gc_pauses():
        load_run = _LoadRun(peer, load, observed)
        query_thread = threading.Thread(target=load_run.run, args=(load_run.search,))
        query_thread.start()
        load_run.run(load_run.write)
        query_thread.join()
    commits = percentiles(load_run.commits_ms)
    observed.figures = {
        "commit_p50_ms": commits["p50_ms"],
        "commit_p99_ms": commits["p99_ms"],
        "behind_s": max(0.0, load_run.last_search_end_s - load.last_due_s),
    }
    return observed


class _LoadRun:
    """A run of the load on a peer; all times are in seconds since its start."""

    def __init__(self, peer: Peer, load: Load, observed: Measurements) -> None:
        self._peer = peer
        self._load = load
        self._observed = observed
        self._start = perf_counter() + 0.1
        self.commits_ms: list[float] = []
        """Duration of each commit, without the time that its documents waited for it to begin."""
        self.last_search_end_s = 0.0
        """When the search for the last document returned; late if commits are slow."""

    def run(self, loop: Callable[[], None]) -> None:
        """Run the loop of a thread, `write` or `search`; count an exception as an error."""
        try:
            loop()
        except Exception as error:
            self._observed.errors[f"{type(error).__name__}: {error}"] += 1

    def write(self) -> None:
        """Write the arriving documents, and query for each; runs in the writing thread."""
        search = self._peer.open_searcher()
        batch: list[DocumentArrival] = []
        commit_at_s = 0.0
        for each in self._load.document_arrivals:
            interval_s = self._peer.commit_every_s
            while interval_s and batch and commit_at_s < each.due_s:
                self._wait(commit_at_s)
                self._commit(batch, search)
                batch = []
            self._wait(each.due_s)
            self._record_send_delay(each.due_s)
            if not batch:
                now = self._now()
                commit_at_s = now - now % interval_s + interval_s if interval_s else now
            batch.append(each)
            if not interval_s:
                self._commit(batch, search)
                batch = []
        if batch:
            self._wait(commit_at_s)
            self._commit(batch, search)

    def search(self) -> None:
        """Send the queries of the load; runs in the querying thread."""
        search = self._peer.open_searcher()
        for due_s, query in self._load.query_arrivals:
            self._wait(due_s)
            self._record_send_delay(due_s)
            search(query)
            if due_s >= self._load.warmup_s:
                self._observed.queries.setdefault(query.kind, []).append(self._elapsed_ms(due_s))

    def _commit(
        self, batch: Sequence[DocumentArrival], search: Callable[[DrawnQuery], list[str]]
    ) -> None:
        """Commit a batch of documents, then search for each of them."""
        start_s = self._now()
        self._peer.write([(each.id, each.text) for each in batch])
        durable_s = self._now()
        self.commits_ms.append(1000 * (durable_s - start_s))
        for each in batch:
            hits = search(DrawnQuery("term", [each.word]))
            if hits != [each.id]:
                self._observed.errors["not found"] += 1
            elif each.due_s >= self._load.warmup_s:
                self._observed.acknowledged_ms.append(1000 * (durable_s - each.due_s))
                self._observed.freshness_ms.append(self._elapsed_ms(each.due_s))
        self.last_search_end_s = self._now()

    def _now(self) -> float:
        return perf_counter() - self._start

    def _elapsed_ms(self, due_s: float) -> float:
        return 1000 * (self._now() - due_s)

    def _wait(self, due_s: float) -> None:
        while (pause := due_s - self._now()) > 0:
            sleep(pause)

    def _record_send_delay(self, due_s: float) -> None:
        if due_s >= self._load.warmup_s:
            self._observed.send_delay_ms.append(self._elapsed_ms(due_s))


def main(name: str, load_file: Path) -> None:
    """Measure a peer and print the measurements."""
    process = psutil.Process()
    load = Load.read(load_file)
    initial_mib = process.memory_info().rss / MIB
    with TemporaryDirectory(prefix="driftline-bench-") as directory:
        peer = PEERS[name](Path(directory))
        start, cpu_s = perf_counter(), sum(process.cpu_times()[:2])
        observed = observe(peer, load)
        observed.cores[name] = (sum(process.cpu_times()[:2]) - cpu_s) / (perf_counter() - start)
        observed.memory_mib[name] = process.memory_info().rss / MIB - initial_mib
        peer.close()
    print(observed.as_json())


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
