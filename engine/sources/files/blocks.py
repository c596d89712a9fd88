"""The bytes of a file, plain, gzip or bzip2, in blocks of at most 64 KiB.

The standard library's file objects for compressed files take a damaged second stream for the end
of the file. In a multistream dump that would silently lose records, so the decompressors are
driven here: a file either ends where its last stream ends, or it is `Broken`.

Costs: two blocks of memory, whatever the file's size and however well it is compressed.
"""

import bz2
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

BLOCK_BYTES = 2**16


class Broken(Exception):
    """Nothing after this point of the file can be known. Never leaves `engine.sources`."""


class Blocks:
    """Iterates over a file's decompressed bytes; knows how much of the file is consumed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.consumed = 0  # bytes of the file as it lies on disk

    def __iter__(self) -> Iterator[bytes]:
        try:
            with self.path.open("rb") as file:
                raw = self._counted(iter(lambda: file.read(BLOCK_BYTES), b""))
                make = decompressor(self.path)
                yield from raw if make is None else _decompressed(raw, make)
        except (OSError, zlib.error) as error:
            raise Broken(f"the file cannot be read on: {error}") from None

    def _counted(self, raw: Iterator[bytes]) -> Iterator[bytes]:
        self.consumed = 0
        for block in raw:
            self.consumed += len(block)
            yield block


class _Decompressor(Protocol):
    """What bz2 offers."""

    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int) -> bytes: ...


class _Gzip:
    """zlib's decompressor, with the methods of bz2's."""

    def __init__(self) -> None:
        self._zlib = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)

    @property
    def eof(self) -> bool:
        return self._zlib.eof

    @property
    def needs_input(self) -> bool:
        return not self._zlib.unconsumed_tail

    @property
    def unused_data(self) -> bytes:
        return self._zlib.unused_data

    def decompress(self, data: bytes, max_length: int) -> bytes:
        return self._zlib.decompress(self._zlib.unconsumed_tail + data, max_length)


def decompressor(path: Path) -> Callable[[], _Decompressor] | None:
    """By the name, so that a damaged beginning is an error and not taken for text; or by magic."""
    with path.open("rb") as file:
        magic = file.read(4)
    if path.suffix.lower() == ".gz" or magic.startswith(b"\x1f\x8b\x08"):
        return _Gzip
    if path.suffix.lower() == ".bz2" or (magic.startswith(b"BZh") and magic[3:4] in b"123456789"):
        return bz2.BZ2Decompressor
    return None


def _decompressed(raw: Iterator[bytes], make: Callable[[], _Decompressor]) -> Iterator[bytes]:
    stream = make()
    for block in raw:
        data = block
        while True:
            if stream.eof:  # one stream follows another; zeros may pad the last one
                data = data.lstrip(b"\0")
                if not data:
                    break
                stream = make()
            if output := stream.decompress(data, BLOCK_BYTES):
                yield output
            if stream.eof:
                data = stream.unused_data
            elif stream.needs_input:
                break
            else:
                data = b""
    if not stream.eof:
        raise Broken("the compressed file ends too early; is it a partial download?")
