"""The bytes of a file, plain, gzip, bzip2, xz or zstd, in buffers of at most 64 KiB.

The file objects of `bz2` and `lzma` treat a damaged second stream as the end of the file, and so
would silently lose records of a multistream dump. Therefore this module calls the decompressors
itself, and raises `Broken` for a file that does not end at the end of a stream.

Memory: two buffers and the decompressor, whatever the size of the file. A decompressor of xz or
zstd needs the window of the file, at most 256 MiB. For zstd, add up to 8 MiB of decompressed data.
"""

import bz2
import lzma
import re
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import zstandard

BUFFER_BYTES = 2**16

PART_BYTES_MIN, PARTS = 2**10, 2**6
"""A file is read in about `PARTS` parts, so that progress is visible. A part has at least
`PART_BYTES_MIN` and at most `BUFFER_BYTES`."""

TAIL_BYTES = 2**17
"""Maximum size of a last line without a newline that `incomplete_line` returns."""


class Broken(Exception):
    """The file cannot be read after this point. Never leaves `connectors.files`."""


class Buffers:
    """The decompressed buffers of a file, as an iterable. Raises Broken."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.read_bytes = 0
        """Bytes read from the disk, compressed or not."""
        self.processed_bytes = 0
        """The part of `read_bytes` that is processed: all except the latest buffer."""
        self.length = 0
        """Decompressed bytes yielded so far."""
        self._tail = b""
        """The last bytes yielded: at least the last line, if that is not too long."""

    def __iter__(self) -> Iterator[bytes]:
        self.length, self._tail = 0, b""
        try:
            with self.path.open("rb") as file:
                part_bytes = max(PART_BYTES_MIN, self.path.stat().st_size // PARTS)
                part_bytes = min(BUFFER_BYTES, part_bytes)
                buffers = self._count_bytes(iter(lambda: file.read(part_bytes), b""))
                if (make_decompressor := decompressor(self.path)) is not None:
                    buffers = _decompressed(buffers, make_decompressor)
                for buffer in buffers:
                    self.length += len(buffer)
                    tail = buffer if b"\n" in buffer else self._tail + buffer
                    self._tail = tail[-TAIL_BYTES:]
                    yield buffer
        except (OSError, zlib.error, lzma.LZMAError, zstandard.ZstdError) as error:
            raise Broken(f"the file cannot be read any further: {error}") from None

    def incomplete_line(self) -> bytes:
        """Return the last line if it has no newline; b"" if it has one, is blank or too long."""
        _, newline, line = self._tail.rpartition(b"\n")
        return line if line.strip() and (newline or len(line) == self.length) else b""

    def _count_bytes(self, disk_buffers: Iterator[bytes]) -> Iterator[bytes]:
        self.read_bytes = self.processed_bytes = 0
        for buffer in disk_buffers:
            self.read_bytes += len(buffer)
            yield buffer
            self.processed_bytes = self.read_bytes


class _Decompressor(Protocol):
    """The interface of bz2.BZ2Decompressor."""

    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int) -> bytes: ...


class _Gzip:
    """zlib's decompressor, with the interface of bz2's."""

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


XZ_BYTES_MAX = 2**28
"""Memory limit of an xz decompressor; files of `xz -9` need 65 MiB."""


def _xz() -> lzma.LZMADecompressor:
    return lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=XZ_BYTES_MAX)


ZSTD_BYTES = 2**8
"""Bytes given to a zstd decompressor per call. They yield at most 8 MiB: they contain at most 64
blocks of at least 4 bytes, and a block expands to at most 128 KiB."""


class _Zstd:
    """The decompressor of one zstd frame, with the interface of bz2's.

    The library's decompressor has no limit for its output, so it gets little input at a time.
    """

    def __init__(self) -> None:
        self._frame = zstandard.ZstdDecompressor().decompressobj()
        self._input = self._output = b""

    @property
    def eof(self) -> bool:
        return self._frame.eof and not self._output

    @property
    def needs_input(self) -> bool:
        return not (self._input or self._output)

    @property
    def unused_data(self) -> bytes:
        return self._frame.unused_data + self._input

    def decompress(self, data: bytes, max_length: int) -> bytes:
        pending, position = memoryview(self._input + data), 0
        outputs, size = [self._output], len(self._output)
        while position < len(pending) and size < max_length and not self._frame.eof:
            outputs.append(self._frame.decompress(pending[position : position + ZSTD_BYTES]))
            size += len(outputs[-1])
            position += ZSTD_BYTES
        self._input, output = bytes(pending[position:]), b"".join(outputs)
        self._output = output[max_length:]
        return output[:max_length]


COMPRESSIONS: dict[str, tuple[re.Pattern[bytes], Callable[[], _Decompressor]]] = {
    ".gz": (re.compile(rb"\x1f\x8b\x08"), _Gzip),
    ".bz2": (re.compile(rb"BZh[1-9]"), bz2.BZ2Decompressor),
    ".xz": (re.compile(rb"\xfd7zXZ\0"), _xz),
    ".zst": (re.compile(rb"\x28\xb5\x2f\xfd"), _Zstd),
}
"""Extension of a file -> pattern of its first bytes, and function that makes its decompressor."""


def decompressor(path: Path) -> Callable[[], _Decompressor] | None:
    """Return a function that makes the decompressor of a file; None for a plain file.

    The extension takes precedence over the first bytes, so that a compressed file with a damaged
    beginning is not read as text.
    """
    with path.open("rb") as file:
        beginning = file.read(8)
    if (extension := path.suffix.lower()) in COMPRESSIONS:
        return COMPRESSIONS[extension][1]
    return next((make for magic, make in COMPRESSIONS.values() if magic.match(beginning)), None)


def _decompressed(
    disk_buffers: Iterator[bytes], make_decompressor: Callable[[], _Decompressor]
) -> Iterator[bytes]:
    stream = make_decompressor()
    for buffer in disk_buffers:
        data = buffer
        while True:
            if stream.eof:  # one stream follows another; zeros may pad the last one
                data = data.lstrip(b"\0")
                if not data:
                    break
                stream = make_decompressor()
            if output := stream.decompress(data, BUFFER_BYTES):
                yield output
            if stream.eof:
                data = stream.unused_data
            elif stream.needs_input:
                break
            else:
                data = b""
    if not stream.eof:
        raise Broken("the compressed file ends too early, as a partial download does")
