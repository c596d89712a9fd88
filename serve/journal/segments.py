"""The files of the journal: segments, to which frames are appended.

``segment-00000000``, ``segment-00000001``, ... A segment begins with a header, which has all that
has to be known of the segments before it: so reading from a time on begins with one segment, and
the oldest ones can be removed. When one is full, the next one begins, in one atomic step.

Only the last segment may have a torn end, left by a crash; it is cut off when the journal is
opened. Anything else that cannot be read is damage, and is named.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from driftline.engine.durable import replace_file, reported, sync_directory, write_at
from driftline.engine.errors import StateMismatch
from driftline.engine.labels import INFINITY
from driftline.serve.errors import NoLongerRetained
from driftline.serve.journal.entries import BEGINNING, Entry, Header
from driftline.serve.journal.frames import HEAD_BYTES, framed, payload_at
from driftline.serve.journal.reading import (
    damaged_at,
    frames_of,
    header_of,
    numbers_in,
    path_of,
)

SEGMENT_BYTES = 1 << 26
"""From this size on a segment is full."""

SEGMENT_ENTRIES = 1 << 16
"""With so many entries, too: who opens the journal reads its last segment, some 10 us an entry."""

_SOME_BYTES = 1 << 16
"""Bytes of frames that a reader takes at a time."""


@dataclass(frozen=True, slots=True)
class Retention:
    """How much of the journal stays. The last segment always does."""

    bytes: int | None = None
    """Of all segments together, at most."""
    seconds: float | None = None
    """Since a segment was last written to, at most."""


class Segments:
    """The segments in a directory, of which nobody else writes one.

    `segment_bytes`: see SEGMENT_BYTES. Raises StateMismatch for damage, Unavailable.
    """

    def __init__(self, directory: Path, segment_bytes: int = SEGMENT_BYTES) -> None:
        self.directory = directory
        self.torn = False
        """Whether a write has failed: what is not durable may be torn, and has to be cut off."""
        self._segment_bytes = segment_bytes
        self._file = -1
        self._durable = self._length = 0
        """Bytes of the last segment that are durable, and that have been written."""
        self._entries = 0
        """How many have been written to it, with those that were cut off."""
        with self._opening():
            self._starts = {number: self._header(number).time for number in self._numbers()}
            """Number -> the time of its header, in order."""
            if not self._starts:
                self._begin(0, BEGINNING)
            else:
                self._open(self.last, *self._whole(self.last))
                self.cut()

    @property
    def oldest(self) -> int:
        """Everything from this time on can be read."""
        return next(iter(self._starts.values()))

    @property
    def last(self) -> int:
        """The number of the segment that is written to."""
        return next(reversed(self._starts))

    @property
    def full(self) -> bool:
        """Whether the next segment has to begin."""
        return self._length >= self._segment_bytes or self._entries >= SEGMENT_ENTRIES

    def append(self, entry: Entry) -> None:
        """Write an entry; `sync` makes it durable, with all others since the last `sync`.

        Raises Unavailable: then what is not durable is gone.
        """
        assert not self.torn, "cut() comes first"
        frame = framed(entry.encode(), self.last, self._length, self._durable)
        with self._written():
            write_at(self._file, frame, self._length)
        self._length += len(frame)
        self._entries += 1

    def sync(self) -> None:
        """Make all entries durable. Raises Unavailable: then what is not durable is gone."""
        assert not self.torn, "cut() comes first"
        if self._length > self._durable:
            with self._written():
                os.fdatasync(self._file)
            self._durable = self._length

    def roll(self, header: Header) -> None:
        """Begin the next segment. Precondition: all entries are durable. Raises Unavailable."""
        assert self._durable == self._length
        with self._reported():  # if this fails, nothing is appended before it is done again
            self._begin(self.last + 1, header)

    def cut(self) -> None:
        """Cut off what is not durable. Raises Unavailable."""
        with self._reported():
            os.ftruncate(self._file, self._durable)
            os.fdatasync(self._file)
        self._length, self.torn = self._durable, False

    def read(self, number: int) -> Iterator[Header | Entry]:
        """The headers and entries from the beginning of a segment on.

        Up to what has been written by the time that one comes there: it is made durable first.
        Raises StateMismatch for damage, NoLongerRetained, Unavailable.
        """
        while number <= self.last:
            yield from self._read(number)
            number += 1

    def holding(self, time: int) -> int:
        """The number of the latest segment that has all outputs from a time on.

        Raises NoLongerRetained.
        """
        if time < self.oldest:
            raise NoLongerRetained.by(f"the journal {self.directory}", self.oldest)
        return max(number for number, start in self._starts.items() if start <= time)

    def drop(self, retention: Retention, now: float, needed: int = INFINITY) -> None:
        """Remove the oldest segments that need not stay.

        `now`: in seconds since 1970; `needed`: outputs from this time on stay in any case. Raises
        Unavailable.
        """
        with self._reported():
            found = {number: self._path(number).stat() for number in self._starts}
            total = sum(each.st_size for each in found.values())
            numbers = list(self._starts)
            for number, after in pairwise(numbers):
                is_much = retention.bytes is not None and total > retention.bytes
                age = now - found[number].st_mtime
                is_old = retention.seconds is not None and age > retention.seconds
                if self._starts[after] > needed or not (is_much or is_old):
                    break
                self._path(number).unlink()
                del self._starts[number]
                sync_directory(self.directory)  # before the next one, so that no gap can be left
                total -= found[number].st_size

    def close(self) -> None:
        """Close the file that is written to. May be called again."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _path(self, number: int) -> Path:
        return path_of(self.directory, number)

    def _numbers(self) -> list[int]:
        for draft in self.directory.glob(".segment-*"):
            draft.unlink()
        sync_directory(self.directory)  # a name that is read must survive a power cut
        return numbers_in(self.directory)

    @contextmanager
    def _opening(self) -> Iterator[None]:
        try:
            with self._reported():
                yield
        except BaseException:
            self.close()
            raise

    def _begin(self, number: int, header: Header) -> None:
        frame = framed(header.encode(), number, 0, 0)
        replace_file(self._path(number), frame)
        self._open(number, len(frame), 0)
        self._starts[number] = header.time

    def _open(self, number: int, length: int, entries: int) -> None:
        """Write to a segment from now on, after so many bytes and entries."""
        file = os.open(self._path(number), os.O_RDWR)
        self.close()
        self._file, self._entries = file, entries
        self._durable = self._length = length

    def _whole(self, number: int) -> tuple[int, int]:
        """Where the last whole frame ends, and how many entries there are.

        Raises StateMismatch for damage.
        """
        offset = frames = 0
        for payload in frames_of(self._path(number), number):
            offset += HEAD_BYTES + len(payload)
            frames += 1
        return offset, frames - 1

    def _header(self, number: int) -> Header:
        path = self._path(number)
        with path.open("rb") as file:
            payload = payload_at(file, number, 0, path.stat().st_size)
        if payload is None:
            raise self._damaged(number, 0)
        return header_of(payload, path)

    def _read(self, number: int) -> Iterator[Header | Entry]:
        path, offset = self._path(number), 0
        while offset < (end := self._end(number, offset)):
            # No file is open while somebody else has his turn: there may be many who read.
            for payload in self._some(path, number, offset, end):
                yield Entry.decode(payload) if offset else header_of(payload, path)
                offset += HEAD_BYTES + len(payload)

    def _some(self, path: Path, number: int, offset: int, end: int) -> list[bytes]:
        """The payloads of some frames, at least of one."""
        found: list[bytes] = []
        at = offset
        with self._reported(), path.open("rb", buffering=_SOME_BYTES) as file:
            file.seek(at)
            while at < min(end, offset + _SOME_BYTES):
                payload = payload_at(file, number, at, end)
                if payload is None:
                    break  # told once the frames before it are read
                found.append(payload)
                at += HEAD_BYTES + len(payload)
        if not found:
            raise self._damaged(number, offset)
        return found

    def _end(self, number: int, offset: int) -> int:
        """Up to where a segment may be read; `offset`: up to where it has been."""
        if number not in self._starts:
            raise NoLongerRetained.by(f"the journal {self.directory}", self.oldest)
        if number < self.last:
            with self._reported():
                return self._path(number).stat().st_size
        if offset >= self._durable and not self.torn:
            self.sync()
        return self._durable

    def _damaged(self, number: int, offset: int) -> StateMismatch:
        return damaged_at(self._path(number), offset)

    @contextmanager
    def _written(self) -> Iterator[None]:
        """Around a write: if it fails, nobody knows what is there after what is durable."""
        try:
            with self._reported():
                yield
        except BaseException:
            self.torn = True
            raise

    def _reported(self) -> AbstractContextManager[None]:
        return reported("journal", self.directory)
