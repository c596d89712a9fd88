"""Processes of the floor: workers, and with durable ends a consumer.

A *worker* tokenises documents, stores the postings of the words that it owns, and sends the changes
to the consumer. It has one inbox for both documents (id, text) from the producer and shares (id,
words, positions) from other workers, because a blocking `recv` on one socket costs less than
polling two. A worker gives no guarantees.

The *consumer* process exists only with durable ends. It appends the workers' messages to a file and
reports them to the measuring process. All queued messages form one group, with one write and one
fdatasync; meanwhile the next group accumulates. A group is decoded only once it is durable.

Arguments: `worker DIRECTORY NUMBER WORKERS`, or `consumer DIRECTORY`.
"""

from __future__ import annotations

import gc
import os
import sys
from collections import defaultdict
from pathlib import Path
from time import perf_counter
from typing import cast
from zlib import crc32

import msgpack
import zmq

from driftline.bench.systems.processes import (
    READY,
    Context,
    inbox,
    messages,
    outbox,
    pack_stored,
)
from driftline.connectors.files.generated import positions_of_words

Positions = tuple[int, ...]
Share = tuple[str, list[str], list[Positions]]
"""(document id, the document's words that one worker owns, positions per word)."""

_pack = msgpack.Packer(autoreset=True).pack


def decode(message: bytes) -> tuple[object, ...]:
    """Decode a message of the floor, which is always an array."""
    return cast(tuple[object, ...], msgpack.unpackb(message, use_list=False))


class WorkerOfWord(dict[str, int]):
    """Word -> number of the worker that owns it; the same in all processes, cached per word."""

    def __init__(self, workers: int) -> None:
        super().__init__()
        self.workers = workers

    def __missing__(self, word: str) -> int:
        worker = self[word] = crc32(word.encode()) % self.workers
        return worker


class FloorWorker:
    """Worker with one partition of the inverted index."""

    def __init__(self, context: Context, directory: Path, number: int, workers: int) -> None:
        self.number = number
        self.worker_of_word = WorkerOfWord(workers)
        self.index: defaultdict[str, dict[str, Positions]] = defaultdict(dict)
        self.inbox = inbox(context, directory, f"worker{number}")
        self.results = outbox(context, directory, "results")
        self.peers = [outbox(context, directory, f"worker{peer}") for peer in range(workers)]
        self.results.send(READY)

    def run(self) -> None:
        """Process messages until the parent process exits."""
        for message in messages(self.inbox):
            content = decode(message)
            if len(content) == 2:
                self._tokenise(*cast(tuple[str, str], content))
            else:
                self._apply(message, *cast(Share, content))

    def _tokenise(self, document: str, text: str) -> None:
        """Send the other workers their shares of a document, then apply this worker's share."""
        positions_by_word = positions_of_words(text)

        worker_of_word = self.worker_of_word
        shares: list[Share] = [(document, [], []) for _ in self.peers]
        for word, places in positions_by_word.items():
            _, words, positions = shares[worker_of_word[word]]
            words.append(word)
            positions.append(tuple(places))

        for peer, share in enumerate(shares):
            if peer != self.number and share[1]:
                self.peers[peer].send(_pack(share))
        own = shares[self.number]
        if own[1]:
            self._apply(_pack(own), *own)

    def _apply(
        self, share: bytes, document: str, words: list[str], positions: list[Positions]
    ) -> None:
        """Store a share of a document; send it and each word's document count to the consumer."""
        index = self.index
        document_counts: list[int] = []
        for word, places in zip(words, positions, strict=True):
            documents = index[word]
            documents[document] = places
            document_counts.append(len(documents))
        # The changes (document, words, positions, document counts) are the packed share plus one
        # column. To avoid repacking, only the share's first byte changes, from an array of three to
        # an array of four.
        self.results.send(b"".join((b"\x94", memoryview(share)[1:], _pack(document_counts))))


class FloorConsumer:
    """Consumer that writes changes to a file and reports them to the measuring process."""

    def __init__(self, context: Context, directory: Path) -> None:
        self.results = inbox(context, directory, "results")
        self.reports = outbox(context, directory, "arrivals")
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        self.file = os.open(directory / "changes", flags, 0o644)

    def run(self) -> None:
        """Store messages, in groups, until the parent process exits."""
        for message in messages(self.results):
            group = [message]
            while self.results.poll(0):
                group.append(self.results.recv())
            self._store(group)

    def _store(self, group: list[bytes]) -> None:
        for _ in range(group.count(READY)):  # forward the workers' start messages
            self.reports.send(READY)
        changes = [message for message in group if message != READY]
        if not changes:
            return
        os.write(self.file, b"".join(changes))
        os.fdatasync(self.file)
        now = perf_counter()
        decoded = [cast(tuple[str, list[str]], decode(message)[:2]) for message in changes]
        self.reports.send(pack_stored([(document, words, now) for document, words in decoded]))


def main() -> None:
    """Run the process."""
    kind, directory, *numbers = sys.argv[1:]
    context: Context = zmq.Context()
    process: FloorWorker | FloorConsumer
    if kind == "worker":
        number, workers = map(int, numbers)
        process = FloorWorker(context, Path(directory), number, workers)
    else:
        process = FloorConsumer(context, Path(directory))
    gc.freeze()
    gc.disable()  # this code creates no reference cycles
    process.run()


if __name__ == "__main__":
    main()
