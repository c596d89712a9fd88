"""Storage of documents in compressed blocks: reading a document decompresses about 16 KiB."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator

BLOCK_BYTES = 1 << 14
"""Uncompressed bytes at which a block is full."""

_LEVEL = 6

Block = tuple[list[int], bytes]
"""(size of each document in bytes, compressed concatenation of the documents)."""


def blocks(documents: Iterable[bytes]) -> Iterator[Block]:
    """Pack documents into blocks, in order."""
    pending = _Pending()
    for document in documents:
        pending.add(document)
        if pending.size >= BLOCK_BYTES:
            yield pending.take_block()
    if pending.sizes:
        yield pending.take_block()


def repack(source: Iterable[Block]) -> Iterator[Block]:
    """Repack blocks so that all but the last are at least half full.

    A block that is already half full remains unchanged, unless documents of a smaller block before
    it are not in a block yet.
    """
    pending = _Pending()
    for sizes, data in source:
        if not pending.sizes and sum(sizes) >= BLOCK_BYTES // 2:
            yield sizes, data
            continue
        for document in documents_of(sizes, data):
            pending.add(document)
            if pending.size >= BLOCK_BYTES:
                yield pending.take_block()
        if pending.size >= BLOCK_BYTES // 2:
            yield pending.take_block()
    if pending.sizes:
        yield pending.take_block()


def documents_of(sizes: list[int], data: bytes) -> Iterator[bytes]:
    """Yield the documents of a block."""
    content, at = zlib.decompress(data), 0
    for size in sizes:
        yield content[at : at + size]
        at += size


def document(data: bytes, begin: int, end: int) -> bytes:
    """Return the document at the bytes [begin, end) of the decompressed block."""
    return zlib.decompress(data)[begin:end]


class _Pending:
    """Documents that are not in a block yet."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.size = 0
        self._documents: list[bytes] = []

    def add(self, document: bytes) -> None:
        self.sizes.append(len(document))
        self.size += len(document)
        self._documents.append(document)

    def take_block(self) -> Block:
        """Remove all pending documents and return them as a block."""
        block = self.sizes, zlib.compress(b"".join(self._documents), _LEVEL)
        self.sizes, self.size, self._documents = [], 0, []
        return block
