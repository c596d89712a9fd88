"""File of named sections, written once, then mapped into memory; each page has a checksum.

    header    magic, format, start, size and checksum of the table; checksum of the header
    sections  each at a multiple of 64 bytes, zero-padded
    table     metadata of the writer; per section: name, offset, size, dtype of its
              numbers ("": bytes), a CRC32 per page

A page is checked before it is first read, so opening a file does not read all of it. The kernel may
read the page from disk again later; only `verify` detects damage that occurred in the meantime.
"""

from __future__ import annotations

import mmap
import os
import struct
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from driftline.engine.durable import sync_directory
from driftline.engine.errors import DriftlineError, MalformedMessage
from driftline.engine.wire.codec import pack, unpack

FORMAT = 2

PAGE_BYTES = 1 << 16
"""Bytes per checksum; checking a page takes about 30 microseconds."""

_MAGIC = b"drift-ix"
_HEADER = struct.Struct("<8sI4xQQI")
_CHECKSUM = struct.Struct("<I")
_ALIGNMENT = 64


class DamagedSegment(DriftlineError):
    """Raised if a segment file does not contain the bytes that were written.

    `path`: the file; `problem`: what is wrong. The message adds that the index is rebuilt.
    """

    def __init__(self, problem: str, path: Path) -> None:
        super().__init__(f"{problem}; the index is rebuilt from the journal")
        self.problem = problem
        self.path = path


class UnsupportedFormat(DriftlineError):
    """Raised if an intact file has an unsupported format; `problem`: as in DamagedSegment."""

    def __init__(self, path: Path, file_format: int) -> None:
        self.problem = (
            f"{path} is not a segment that this version of Driftline reads (its format is "
            f"{file_format}, not {FORMAT})"
        )
        super().__init__(f"{self.problem}; the index is rebuilt from the journal")


def _damaged(path: Path, where: str, what: str) -> DamagedSegment:
    return DamagedSegment(f"{path}: {where} is damaged ({what})", path)


class Section:
    """Section of a file mapped into memory.

    `data`: the mapped file; `offset`, `size`: bytes of the section in the file; `dtype`: type of
    its numbers, "" for bytes; `checksums`: the CRC32 of each page.
    """

    def __init__(
        self,
        path: Path,
        name: str,
        data: memoryview,
        offset: int,
        size: int,
        dtype: str,
        checksums: bytes,
    ) -> None:
        self.size = size
        self.bytes: NDArray[np.uint8] = np.frombuffer(data, np.uint8, size, offset)
        """The section as an array. Call `check` for a range of bytes before reading it."""
        self._path = path
        self._name = name
        self._dtype = dtype
        self._data = data[offset : offset + _aligned(size)]
        self._checksums: list[int] = np.frombuffer(checksums, "<u4").tolist()
        self._unchecked = bytearray(b"\1" * len(self._checksums))
        """Per page, whether `check` must still verify it."""

    def check(self, begin: int, end: int) -> None:
        """Verify the pages of the bytes [begin, end), except pages verified before.

        Raises DamagedSegment.
        """
        first, last = begin // PAGE_BYTES, -(-end // PAGE_BYTES)
        page = self._unchecked.find(1, first, last)
        while page >= 0:
            at = page * PAGE_BYTES
            if crc32(self._data[at : at + PAGE_BYTES]) != self._checksums[page]:
                raise _damaged(
                    self._path, f"section {self._name!r}", f"wrong checksum at byte {at}"
                )
            self._unchecked[page] = 0
            page = self._unchecked.find(1, page + 1, last)

    def verify(self) -> None:
        """Verify all pages, including those verified before. Raises DamagedSegment."""
        self._unchecked = bytearray(b"\1" * len(self._checksums))
        self.check(0, self.size)

    def read(self, begin: int, end: int) -> bytes:
        """Return a range of bytes. Raises DamagedSegment."""
        self.check(begin, end)
        return bytes(self._data[begin:end])

    def read_all(self) -> memoryview:
        """Return all bytes. Raises DamagedSegment."""
        self.check(0, self.size)
        return self._data[: self.size]

    def array(self) -> NDArray[Any]:
        """Return the array that was written. Raises DamagedSegment."""
        return np.frombuffer(self.read_all(), self._dtype)


class Sections:
    """Reader of a file of sections; the file stays mapped as long as anything refers to its data.

    `metadata`: the argument of `SectionWriter.publish`; `size`: size of the file; `checksum`: CRC32
    of the table, which contains the checksums of all sections. Raises DamagedSegment,
    UnsupportedFormat, OSError.
    """

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size < _ALIGNMENT:
                raise _damaged(path, "the header", f"the file ends at byte {size}")
            data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        header = bytes(data[: _HEADER.size])
        if _CHECKSUM.unpack_from(data, _HEADER.size) != (crc32(header),):
            raise _damaged(path, "the header", "wrong checksum")
        magic, file_format, offset, length, checksum = _HEADER.unpack(header)
        if (magic, file_format) != (_MAGIC, FORMAT):
            raise UnsupportedFormat(path, file_format)
        if size != offset + length:
            raise _damaged(path, "the end", f"{size} bytes, but {offset + length} were written")
        if crc32(data[offset:]) != checksum:
            raise _damaged(path, "the table", "wrong checksum")
        self.size, self.checksum = size, checksum
        try:
            self.metadata, self._sections = _read_table(path, data, offset)
        except MalformedMessage as error:
            raise _damaged(path, "the table", str(error)) from None

    def __getitem__(self, name: str) -> Section:
        return self._sections[name]

    def verify(self) -> None:
        """Verify all sections, including pages verified before. Raises DamagedSegment."""
        for section in self._sections.values():
            section.verify()

    def __contains__(self, name: str) -> bool:
        return name in self._sections


def _read_table(path: Path, data: memoryview, at: int) -> tuple[object, dict[str, Section]]:
    match unpack(bytes(data[at:])):
        case (metadata, tuple(table)):
            sections: dict[str, Section] = {}
            for row in table:
                match row:
                    case (str(name), int(offset), int(size), str(dtype), bytes(checksums)):
                        sections[name] = Section(path, name, data, offset, size, dtype, checksums)
                    case _:
                        raise MalformedMessage("not a section")
            return metadata, sections
        case _:
            raise MalformedMessage("not a table")


class SectionWriter:
    """Writer of a file of sections.

    `publish` makes the file complete, durable and visible under its name. Leaving the context
    without `publish` discards the file. All methods raise OSError.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._draft = path.with_name(f".{path.name}.{os.getpid()}")
        self._file: BinaryIO = self._draft.open("wb")
        self._file.write(bytes(_ALIGNMENT))  # reserved for the header
        self._offset = _ALIGNMENT
        self._sections: list[tuple[str, int, int, str, bytes]] = []
        """Finished sections, as rows of the table; attributes below describe the current one."""
        self._name = ""
        self._size = 0
        self._dtype = ""
        self._checksums: list[int] = []

    def __enter__(self) -> SectionWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()
        self._draft.unlink(missing_ok=True)

    def begin(self, name: str) -> None:
        """End the current section, if there is one, and begin another."""
        self._end()
        self._name, self._size, self._dtype, self._checksums = name, 0, "", []

    def append(self, data: bytes | bytearray | memoryview) -> None:
        """Append bytes to the current section."""
        self._file.write(data)
        at = 0
        while at < len(data):
            page_offset = self._size % PAGE_BYTES
            piece = data[at : at + PAGE_BYTES - page_offset]
            if page_offset:
                self._checksums[-1] = crc32(piece, self._checksums[-1])
            else:
                self._checksums.append(crc32(piece))
            self._size += len(piece)
            at += len(piece)

    def add(self, name: str, array: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> None:
        """Begin a section that contains an array."""
        self.begin(name)
        self._dtype = array.dtype.str
        self.append(array.tobytes())

    def publish(self, metadata: object) -> None:
        """Finish the file, sync it, and rename the draft to the final name.

        `metadata`: any value that msgpack can encode, for `Sections.metadata`.
        """
        self._end()
        table = pack((metadata, self._sections))
        header = _HEADER.pack(_MAGIC, FORMAT, self._offset, len(table), crc32(table))
        self._file.write(table)
        self._file.seek(0)
        self._file.write(header + _CHECKSUM.pack(crc32(header)))
        self._file.flush()
        os.fdatasync(self._file.fileno())
        os.replace(self._draft, self._path)
        sync_directory(self._path.parent)

    def _end(self) -> None:
        """Pad the current section and record it in the table."""
        if self._name:
            size = self._size
            self.append(bytes(_aligned(size) - size))
            checksums = np.array(self._checksums, "<u4").tobytes()
            self._sections.append((self._name, self._offset, size, self._dtype, checksums))
            self._offset += self._size


def _aligned(size: int) -> int:
    """Return the padded size of a section."""
    return -(-size // _ALIGNMENT) * _ALIGNMENT
