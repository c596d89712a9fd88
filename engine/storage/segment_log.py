"""Append-only log of checksummed frames in segment files, for input logs and journals.

Input: payloads, in order. Output: the same payloads, from any segment on.

The files of segments are ``segment-00000000``, ``segment-00000001``, ... A segment begins with a
*header*: a payload in which the writer of the log summarises all earlier segments. So reading can
begin with any segment, and the oldest segments can be removed. When a segment is full, the writer
begins the next one (`roll`), in one atomic step.

A frame is ``magic, checksum, length, durable`` and the payload. The checksum includes the position
of the frame (segment number and offset), so a frame that was copied elsewhere is invalid. `durable`
is the number of bytes of the file that were known to be durable when the frame was written. This
distinguishes a torn end, which a crash may leave, from damage: an unreadable frame is damaged if a
later frame proves that it was durable, and torn otherwise. (`Frame` in `engine.wire.messages` is
unrelated.)

Invariants: after a crash the log has all synced frames, and a prefix of the others. Only the last
segment may have a torn end, which opening the log cuts off. Anything else that cannot be read is
damage: `LogDamaged` names its file and offset.

One thread writes. Other threads may `read` at the same time; they see only durable frames.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as directory:
    ...     log = SegmentLog(Path(directory), "log", b"header 0")
    ...     log.append(b"a")
    ...     log.append(b"b")
    ...     log.sync()
    ...     log.roll(b"header 1")
    ...     [(frame.number, frame.is_header, frame.payload) for frame in log.read(0)]
    [(0, True, b'header 0'), (0, False, b'a'), (0, False, b'b'), (1, True, b'header 1')]
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import pairwise
from pathlib import Path
from struct import Struct
from typing import BinaryIO, NamedTuple
from zlib import crc32

from driftline.engine.durable import replace_file, sync_directory, translate_os_errors, write_at
from driftline.engine.errors import DriftlineError, StateMismatch, Unavailable

_MAGIC = b"\xd7JNL"
_HEAD = Struct("<4sIIQ")
_POSITION = Struct("<QQIQ")

HEAD_BYTES = _HEAD.size
"""Size of a frame without its payload, in bytes."""


def framed(payload: bytes, number: int, offset: int, durable: int) -> bytes:
    """Return the frame of a payload at an offset in segment `number`.

    `durable`: see the module's docstring.

    >>> from io import BytesIO
    >>> frame = framed(b"payload", number=3, offset=0, durable=0)
    >>> payload_at(BytesIO(frame), number=3, offset=0, end=len(frame))
    b'payload'
    >>> payload_at(BytesIO(frame), number=4, offset=0, end=len(frame))
    """
    checksum = _checksum(payload, number, offset, durable)
    return _HEAD.pack(_MAGIC, checksum, len(payload), durable) + payload


def payload_at(file: BinaryIO, number: int, offset: int, end: int) -> bytes | None:
    """Return the payload of the frame at `offset`; None if it is not valid.

    `number`: the number of the segment. `end`: the offset up to which the file may be read.
    Precondition: the position of `file` is `offset`.
    """
    head = file.read(HEAD_BYTES) if offset + HEAD_BYTES <= end else b""
    if len(head) < HEAD_BYTES:
        return None
    magic, checksum, length, durable = _HEAD.unpack(head)
    if magic != _MAGIC or length > end - offset - HEAD_BYTES:
        return None
    payload = file.read(length)
    is_whole = len(payload) == length and checksum == _checksum(payload, number, offset, durable)
    return payload if is_whole else None


def was_durable(rest: bytes, number: int, offset: int) -> bool:
    """Return whether a later frame proves that the data at an offset was durable.

    `number`: the number of the segment. `rest`: the contents of its file from that offset on.
    """
    position = rest.find(_MAGIC, 1)
    while position >= 0:
        if position + HEAD_BYTES <= len(rest):
            _, checksum, length, durable = _HEAD.unpack_from(rest, position)
            payload = rest[position + HEAD_BYTES : position + HEAD_BYTES + length]
            is_frame = checksum == _checksum(payload, number, offset + position, durable)
            if is_frame and len(payload) == length and durable > offset:
                return True
        position = rest.find(_MAGIC, position + 1)
    return False


def _checksum(payload: bytes, number: int, offset: int, durable: int) -> int:
    return crc32(payload, crc32(_POSITION.pack(number, offset, len(payload), durable)))


SEGMENT_BYTES = 1 << 26
"""Size at which a segment is full, in bytes."""

SEGMENT_FRAMES = 1 << 16
"""A segment with this many frames is full, too. This bounds the time to open a log: it takes about
10 us for each frame of the last segment."""

ADVICE = "Restore it together with the rest of the state directory, from one copy"

_NAME = re.compile(r"segment-[0-9]{8}")
_BUFFER_BYTES = 1 << 20

READ_BYTES = 1 << 16
"""Approximate number of bytes that `SegmentLog.read` reads at a time."""


class LogDamaged(StateMismatch):
    """Data in a log is damaged or missing; `problem`: the message without the advice."""

    def __init__(self, problem: str) -> None:
        super().__init__(f"{problem}. {ADVICE}")
        self.problem = problem


class SegmentRemoved(DriftlineError):
    """The segment to read has been removed."""


class StoredFrame(NamedTuple):
    """Frame read from a log."""

    number: int
    """The number of its segment."""
    offset: int
    """The offset in the segment at which it begins; 0 for the header."""
    payload: bytes

    @property
    def is_header(self) -> bool:
        return not self.offset

    @property
    def end(self) -> int:
        """The offset of the next frame."""
        return self.offset + HEAD_BYTES + len(self.payload)


class SegmentLog:
    """Log in a directory. Precondition: no other process writes to it.

    Opening raises LogDamaged, Unavailable. All methods raise Unavailable if the disk fails.
    """

    def __init__(
        self, directory: Path, what: str, first_header: bytes, segment_bytes: int = SEGMENT_BYTES
    ) -> None:
        """Open a log, or begin one with `first_header`. `what`: name of its kind, for errors."""
        self.directory = directory
        self.torn = False
        """Whether a write or sync has failed: call `truncate_unsynced` before the next one."""
        self._title = what
        self._segment_bytes = segment_bytes
        self._file = -1
        self._tail = 0, 0
        """(number of the last segment, number of its durable bytes). One tuple, so that other
        threads read a consistent pair."""
        self._length = 0
        """Number of bytes written to the last segment."""
        self._frames = 0
        """Number of frames written to the last segment after its header, even if cut off later."""
        try:
            with self._translate_errors():
                for draft in directory.glob(".segment-*"):
                    draft.unlink()
                # The file names that `numbers_in` lists must survive a power failure.
                sync_directory(directory)
                self._numbers = numbers_in(directory)
                if not self._numbers:
                    self._begin(0, first_header)
                else:
                    length = frames = 0
                    for frame in frames_of(directory, self._numbers[-1]):
                        length, frames = frame.end, frames + 1
                    self._open(self._numbers[-1], length, frames - 1)
                    self.truncate_unsynced()
        except BaseException:
            self.close()
            raise

    @property
    def numbers(self) -> list[int]:
        """The numbers of all segments, in order."""
        return list(self._numbers)

    @property
    def last(self) -> int:
        """The number of the last segment, to which `append` writes."""
        return self._tail[0]

    @property
    def is_full(self) -> bool:
        """Whether the last segment is full: the writer should call `roll`."""
        return self._length >= self._segment_bytes or self._frames >= SEGMENT_FRAMES

    @property
    def is_synced(self) -> bool:
        """Whether all frames are durable."""
        return self._length == self._tail[1]

    def append(self, payload: bytes) -> None:
        """Write a frame; `sync` makes it durable, with all others since the last `sync`.

        If a write raises, all frames that are not durable are lost; call `truncate_unsynced`.
        """
        assert not self.torn, "call truncate_unsynced first"
        frame = framed(payload, self.last, self._length, self._tail[1])
        with self._torn_on_failure():
            write_at(self._file, frame, self._length)
        self._length += len(frame)
        self._frames += 1

    def sync(self) -> None:
        """Make all frames durable. Errors: as for `append`."""
        assert not self.torn, "call truncate_unsynced first"
        if not self.is_synced:
            with self._torn_on_failure():
                os.fdatasync(self._file)
            self._tail = self.last, self._length

    def roll(self, header: bytes) -> None:
        """Begin the next segment. Precondition: all frames are durable."""
        assert self.is_synced
        # If this fails, the new file may exist. Then the writer must repeat `roll` before it
        # appends: only the last segment may have a torn end.
        with self._translate_errors():
            self._begin(self.last + 1, header)

    def truncate_unsynced(self) -> None:
        """Cut off data that is not durable."""
        with self._translate_errors():
            os.ftruncate(self._file, self._tail[1])
            os.fdatasync(self._file)
        self._length, self.torn = self._tail[1], False

    def read(self, number: int, offset: int = 0) -> Iterator[StoredFrame]:
        """Yield the durable frames from an offset in a segment on.

        Raises LogDamaged, SegmentRemoved, Unavailable.
        """
        while True:
            last, durable = self._tail
            end = durable if number == last else self._size(number)
            if offset < end:
                # No file stays open between reads: there may be many readers.
                for frame in self._read_some(number, offset, end):
                    yield frame
                    offset = frame.end
            elif number == last:
                return
            else:
                number, offset = number + 1, 0

    def remove_oldest(self) -> None:
        """Remove the oldest segment durably. Precondition: it is not the last one."""
        number = self._numbers[0]
        assert number != self.last
        with self._translate_errors():
            path_of(self.directory, number).unlink(missing_ok=True)
            sync_directory(self.directory)  # before the next removal: a crash must not leave a gap
        del self._numbers[0]

    def close(self) -> None:
        """Close the file of the last segment. May be called again."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _begin(self, number: int, header: bytes) -> None:
        frame = framed(header, number, 0, 0)
        replace_file(path_of(self.directory, number), frame)
        self._open(number, len(frame), 0)
        self._numbers.append(number)

    def _open(self, number: int, length: int, frames: int) -> None:
        """Make a segment the last one. `length`: its bytes; `frames`: number without the header."""
        file = os.open(path_of(self.directory, number), os.O_RDWR)
        self.close()
        self._file, self._frames, self._length = file, frames, length
        self._tail = number, length

    def _read_some(self, number: int, offset: int, end: int) -> list[StoredFrame]:
        """Return the next frames before offset `end`: at least one, about READ_BYTES in total."""
        path, frames, position = path_of(self.directory, number), list[StoredFrame](), offset
        try:
            with self._translate_errors(), path.open("rb", buffering=READ_BYTES) as file:
                file.seek(position)
                while position < min(end, offset + READ_BYTES):
                    payload = payload_at(file, number, position, end)
                    if payload is None:
                        break  # raise below if it is the first frame, otherwise in the next call
                    frames.append(StoredFrame(number, position, payload))
                    position = frames[-1].end
        except Unavailable:
            self._check_exists(number)
            raise
        if not frames:
            raise damaged_at(path, offset)
        return frames

    def _size(self, number: int) -> int:
        self._check_exists(number)
        with self._translate_errors():
            return path_of(self.directory, number).stat().st_size

    def _check_exists(self, number: int) -> None:
        if not path_of(self.directory, number).exists():
            raise SegmentRemoved(f"{path_of(self.directory, number)} has been removed")

    @contextmanager
    def _torn_on_failure(self) -> Iterator[None]:
        """Mark the log as torn if the write inside this context fails."""
        try:
            with self._translate_errors():
                yield
        except BaseException:
            self.torn = True
            raise

    def _translate_errors(self) -> AbstractContextManager[None]:
        return translate_os_errors(self._title, self.directory)


# Read-only functions.


def path_of(directory: Path, number: int) -> Path:
    """Return the file of a segment."""
    return directory / f"segment-{number:08}"


def numbers_in(directory: Path) -> list[int]:
    """Return the numbers of all segments, in order.

    Raises LogDamaged if one is missing, OSError.
    """
    names = [path.name for path in directory.iterdir()] if directory.is_dir() else []
    numbers = sorted(int(name[8:]) for name in names if _NAME.fullmatch(name))
    for number, after in pairwise(numbers):
        if after != number + 1:
            raise LogDamaged(f"{path_of(directory, number + 1)} is missing")
    return numbers


def header_of(directory: Path, number: int) -> bytes:
    """Return the header of a segment. Raises LogDamaged, OSError."""
    path = path_of(directory, number)
    with path.open("rb") as file:
        header = payload_at(file, number, 0, path.stat().st_size)
    if header is None:
        raise damaged_at(path, 0)
    return header


def frames_of(directory: Path, number: int) -> Iterator[StoredFrame]:
    """Yield all frames of a segment up to a torn end. Raises LogDamaged, OSError."""
    path = path_of(directory, number)
    end, offset = path.stat().st_size, 0
    with path.open("rb", buffering=_BUFFER_BYTES) as file:
        while (payload := payload_at(file, number, offset, end)) is not None:
            frame = StoredFrame(number, offset, payload)
            yield frame
            offset = frame.end
        file.seek(offset)
        if not offset or was_durable(file.read(), number, offset):
            raise damaged_at(path, offset)


def damaged_at(path: Path, offset: int) -> LogDamaged:
    """Return the error for a damaged file."""
    return LogDamaged(f"{path} is damaged at byte {offset}")
