"""A worker of the floor: tokenises documents, stores the postings of its words, sends all changes.

Run by `bench.systems.floor` as a process of its own, with arguments DIRECTORY NUMBER WORKERS. It
has one inbox for everything: documents (id, text) from the producer and shares (id, words,
positions) from the other workers. Blocking in `recv` costs less than a poller over two sockets,
and `recv` sleeps only when the inbox is empty.

It gives no guarantees: it does only the job itself.
"""

import gc
import os
import sys
from collections import defaultdict
from pathlib import Path
from typing import cast
from zlib import crc32

import msgpack
import zmq

from driftline.bench.systems.sockets import ORPHAN_CHECK_MS, READY, address, open_socket
from driftline.engine.sources.texts.words import positions_of_words

Positions = tuple[int, ...]
Share = tuple[str, list[str], list[Positions]]
"""(document, its words that one worker owns, positions per word)"""

_pack = msgpack.Packer(autoreset=True).pack


def decode(message: bytes) -> tuple[object, ...]:
    """A message of the floor: always an array."""
    return cast(tuple[object, ...], msgpack.unpackb(message, use_list=False))


class WorkerOfWord(dict[str, int]):
    """Word -> the worker that owns it, the same in all processes; computed once per word."""

    def __init__(self, workers: int) -> None:
        super().__init__()
        self.workers = workers

    def __missing__(self, word: str) -> int:
        worker = self[word] = crc32(word.encode()) % self.workers
        return worker


class Worker:
    """One partition of the inverted index, and the sockets around it."""

    def __init__(self, directory: Path, number: int, workers: int) -> None:
        self.number = number
        self.worker_of_word = WorkerOfWord(workers)
        self.index: defaultdict[str, dict[str, Positions]] = defaultdict(dict)
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.inbox = open_socket(self.context, zmq.PULL)
        self.inbox.rcvtimeo = ORPHAN_CHECK_MS
        self.inbox.bind(address(directory, f"worker{number}"))
        self.results = self._connected(directory, "results")
        self.peers = [self._connected(directory, f"worker{peer}") for peer in range(workers)]
        self.results.send(READY)

    def _connected(self, directory: Path, name: str) -> zmq.Socket[bytes]:
        socket = open_socket(self.context, zmq.PUSH)
        socket.connect(address(directory, name))
        return socket

    def run(self) -> None:
        """Work until the parent process is gone, or kills this one."""
        parent = os.getppid()
        receive = self.inbox.recv
        while True:
            try:
                message = receive()
            except zmq.Again:
                if os.getppid() != parent:
                    return
                continue
            content = decode(message)
            if len(content) == 2:
                self._tokenise(*cast(tuple[str, str], content))
            else:
                self._apply(message, *cast(Share, content))

    def _tokenise(self, document: str, text: str) -> None:
        """Send the other workers their shares, then apply the own share: they work meanwhile."""
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
        """Store a share of a document; send the new length of each word to the consumer."""
        index = self.index
        lengths: list[int] = []
        for word, places in zip(words, positions, strict=True):
            documents = index[word]
            documents[document] = places
            lengths.append(len(documents))
        self.results.send(_changes(share, lengths))


def _changes(share: bytes, lengths: list[int]) -> bytes:
    """The packed changes (document, words, positions, lengths): a packed share and one column.

    The share is not packed again: its first byte makes the array of three one of four.
    """
    return b"".join((b"\x94", memoryview(share)[1:], _pack(lengths)))


def main() -> None:
    """Entry point of the process."""
    directory, number, workers = sys.argv[1:]
    worker = Worker(Path(directory), int(number), int(workers))
    gc.freeze()
    gc.disable()  # this code makes no cycles
    worker.run()


if __name__ == "__main__":
    main()
