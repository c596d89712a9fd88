"""File of named sections, written once, then mapped into memory; each page has a checksum.

    header    magic, format, start, size and checksum of the table; checksum of the header
    sections  each at a multiple of 64 bytes, zero-padded
    table     metadata of the writer; per section: name, offset, size, dtype of its
              numbers ("": bytes), a CRC32 per page

A page is checked when it is first read, so damaged data is never used, and opening a file does not
read all of it.
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

PAGE = 1 << 16
"""Bytes per checksum; checking a page takes some 30 microseconds."""

_MAGIC = b"drift-ix"
_HEADER = struct.Struct("<8sI4xQQI")
_CHECKSUM = struct.Struct("<I")
_ALIGNED = 64


class DamagedSegment(DriftlineError):
    """Raised if an index file does not contain the bytes that were written.

    `path`: the file; `problem`: the message without the part about the rebuild.
    """

    def __init__(self, problem: str, path: Path) -> None:
        super().__init__(f"{problem}; the index is rebuilt from the journal")
        self.problem = problem
        self.path = path


class OtherFormat(DriftlineError):
    """Raised if an intact file has an unsupported format; `problem`: as in DamagedSegment."""

    def __init__(self, path: Path, form: int) -> None:
        self.problem = (
            f"{path} is not a segment that this version of Driftline reads (format {form}, not "
            f"{FORMAT})"
        )
        super().__init__(f"{self.problem}; the index is rebuilt from the journal")


def _damaged(path: Path, where: str, what: str) -> DamagedSegment:
    return DamagedSegment(f"{path}: {where} is damaged ({what})", path)


class Section:
    """Section of a file mapped into memory."""

    def __init__(
        self,
        path: Path,
        name: str,
        data: memoryview,
        offset: int,
        size: int,
        kind: str,
        sums: bytes,
    ) -> None:
        self.size = size
        self.bytes: NDArray[np.uint8] = np.frombuffer(data, np.uint8, size, offset)
        """The section as an array. Call `check` for a range of bytes before reading it."""
        self._path = path
        self._name = name
        self._kind = kind
        self._data = data[offset : offset + _aligned(size)]
        self._checksums: list[int] = np.frombuffer(sums, "<u4").tolist()
        self._unchecked = bytearray(b"\1" * len(self._checksums))

    def check(self, begin: int, end: int) -> None:
        """Verify the checksums of these bytes. Raises DamagedSegment."""
        first, last = begin // PAGE, -(-end // PAGE)
        page = self._unchecked.find(1, first, last)
        while page >= 0:
            at = page * PAGE
            if crc32(self._data[at : at + PAGE]) != self._checksums[page]:
                raise _damaged(self._path, f"section {self._name!r}", f"checksum at byte {at}")
            self._unchecked[page] = 0
            page = self._unchecked.find(1, page + 1, last)

    def verify(self) -> None:
        """Check all bytes, including those already checked. Raises DamagedSegment."""
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
        return np.frombuffer(self.read_all(), self._kind)


class Sections:
    """Reader of a file of sections; the mapping lives as long as anything refers to its data.

    `metadata`: the argument of `SectionWriter.publish`; `size`: size of the file; `checksum`: CRC32
    of the table, which contains the checksums of all sections. Raises DamagedSegment, OtherFormat,
    OSError.
    """

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size < _ALIGNED:
                raise _damaged(path, "the header", f"the file ends at byte {size}")
            data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        header = bytes(data[: _HEADER.size])
        if _CHECKSUM.unpack_from(data, _HEADER.size) != (crc32(header),):
            raise _damaged(path, "the header", "its checksum")
        magic, form, offset, length, checksum = _HEADER.unpack(header)
        if (magic, form) != (_MAGIC, FORMAT):
            raise OtherFormat(path, form)
        if size != offset + length:
            raise _damaged(path, "the end", f"{size} bytes, but {offset + length} were written")
        if crc32(data[offset:]) != checksum:
            raise _damaged(path, "the table", "its checksum")
        self.size, self.checksum = size, checksum
        try:
            self.metadata, self._sections = _read_table(path, data, offset)
        except MalformedMessage as error:
            raise _damaged(path, "the table", str(error)) from None

    def __getitem__(self, name: str) -> Section:
        return self._sections[name]

    def verify(self) -> None:
        """Check all sections, including pages already checked. Raises DamagedSegment."""
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
                    case (str(name), int(offset), int(size), str(kind), bytes(sums)):
                        sections[name] = Section(path, name, data, offset, size, kind, sums)
                    case _:
                        raise MalformedMessage("not a section")
            return metadata, sections
        case _:
            raise MalformedMessage("not a table")


class SectionWriter:
    """Writer of a file of sections.

    `publish` makes the file complete, durable and visible under its name. A context manager:
    without `publish` the file is discarded. All methods raise OSError.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._draft = path.with_name(f".{path.name}.{os.getpid()}")
        self._file: BinaryIO = self._draft.open("wb")
        self._file.write(bytes(_ALIGNED))  # reserved for the header
        self._offset = _ALIGNED
        self._sections: list[tuple[str, int, int, str, bytes]] = []
        self._name = ""
        self._size = 0
        self._kind = ""
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
        """Begin a section and end the previous one."""
        self._end()
        self._name, self._size, self._kind, self._checksums = name, 0, "", []

    def append(self, data: bytes | bytearray | memoryview) -> None:
        """Append bytes to the section."""
        self._file.write(data)
        at = 0
        while at < len(data):
            inside = self._size % PAGE
            part = data[at : at + PAGE - inside]
            if inside:
                self._checksums[-1] = crc32(part, self._checksums[-1])
            else:
                self._checksums.append(crc32(part))
            self._size += len(part)
            at += len(part)

    def add(self, name: str, array: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> None:
        """Write an array as a section."""
        self.begin(name)
        self._kind = array.dtype.str
        self.append(array.tobytes())

    def publish(self, metadata: object) -> None:
        """Finish the file, sync it and rename it to its name."""
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
        """Record the finished section and pad it."""
        if self._name:
            size = self._size
            self.append(bytes(_aligned(size) - size))
            sums = np.array(self._checksums, "<u4").tobytes()
            self._sections.append((self._name, self._offset, size, self._kind, sums))
            self._offset += self._size


def _aligned(size: int) -> int:
    """Return the padded size of a section."""
    return -(-size // _ALIGNED) * _ALIGNED
