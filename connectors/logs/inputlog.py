"""The input log: the live records that a front received, until no recovery needs them.

An entry is a record with its time, its producer, and its number among that producer's records. The
log also stores the last number of each producer, and whether the producer has ended, even after its
entries are removed. In addition it stores two times. *Reserved*: times below this one may have been
given to records, so after a restart new records get times from this one on. *Trimmed*: entries
below this time are no longer read; they are removed by whole segments. A log whose reserved time is
INFINITY has ended.

Invariants: a group of entries is written together with the last numbers and the ends of producers;
if a crash interrupts the write, a prefix of the group may remain. Times only grow. One process at a
time has a log open as an `InputLog`, and one of its threads writes; other threads may read.
`LoggedSource` and `check_log` may read the log in another process meanwhile.

Format: a segment log (`engine.storage.segment_log`). A frame of this log (not a message `Frame`)
contains some entries of a group; the header of a segment contains everything except entries
(`LogState`). Cost: one fdatasync for a group; some 50 bytes for each producer, never removed, so
that a record is never accepted twice.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from msgspec import Struct, field

from driftline.engine.durable import Lock, make_directory, translate_os_errors
from driftline.engine.errors import InputError, MalformedMessage, StateMismatch
from driftline.engine.sources.record import make_bad_record, truncate_raw
from driftline.engine.sources.source import BadRecord
from driftline.engine.storage.ownership import (
    NO_OWNER,
    OWNER_FILE,
    DirectoryOwner,
    read_owner,
    renew_owner,
)
from driftline.engine.storage.segment_log import (
    SegmentLog,
    StoredFrame,
    damaged_at,
    frames_of,
    header_of,
    numbers_in,
    path_of,
)
from driftline.engine.texts import format_time
from driftline.engine.wire.codec import pack, unpack, why_invalid_record
from driftline.engine.wire.role import IOJob

SEGMENT_BYTES = 1 << 25
"""A segment of this size is full; entries are removed by whole segments."""

FRAME_BYTES = 1 << 16
"""Approximate maximum bytes of entries in a frame, unless one entry is larger."""

READ_BYTES = 1 << 22
"""A read with a limit stops after this many bytes of entries."""

INDEX_BYTES = 1 << 18
"""Minimum distance in bytes between two index entries of a segment."""

PRODUCER_BYTES_MAX = 255

PIPE = "standard input"
"""Name of the one producer of a log of standard input."""

MARKS = ""
"""Name under which a log stores marks, as if a producer had sent them (`engine.event_time`)."""

INPUT_LOG = "input log"
"""Prefix of the identity of a log that is read as a source."""

_FORMAT = "driftline input log 3"


class LoggedRecord(NamedTuple):
    """A record in the log; `sequence`: its number at its producer, `data`: its encoded payload."""

    time: int
    producer: str
    sequence: int
    data: bytes
    received_us: int = 0
    """When the record was received, in microseconds since 1970."""


class WriteGroup(IOJob, frozen=True):
    """Job that stores entries and the ends of producers, sets the reserved time, and trims the log.

    `trim`: entries below this time are no longer read. `ended`: (producer, number of its last
    record) of each producer that sends no more records. `again`: whether this is a retry; the
    failed attempt may have written the group.
    """

    what: ClassVar[str] = "write records to its input log"

    entries: tuple[LoggedRecord, ...]
    reserved: int
    trim: int
    ended: tuple[tuple[str, int], ...] = ()
    again: bool = False


class LogState(Struct):
    """Everything that a log stores besides entries, as of some position in the log."""

    identity: str
    reserved: int = 0
    trimmed: int = 0
    last_time: int = 0
    """The time of the last entry ever written."""
    sequences: dict[str, int] = field(default_factory=dict)
    """Producer -> number of its last record."""
    ended: dict[str, None] = field(default_factory=dict)
    """The producers that send no more records."""

    def encode(self) -> bytes:
        """Return the payload of a header."""
        header = self.identity, self.reserved, self.trimmed, self.last_time
        return pack((_FORMAT, *header, self.sequences, tuple(self.ended)))

    @staticmethod
    def decode(data: bytes, path: Path) -> LogState:
        """Decode the result of `encode`; `path`: the log, for errors.

        Raises StateMismatch for anything else.
        """
        try:
            match unpack(data):
                case (
                    str(form), str(identity), int(reserved), int(trimmed), int(last_time),
                    dict() as sequences, tuple() as ended,
                ) if form == _FORMAT:  # fmt: skip
                    times = reserved, trimmed, last_time
                    return LogState(identity, *times, sequences, dict.fromkeys(ended))
        except MalformedMessage:
            pass
        raise StateMismatch(
            f"{path} is not an input log, or was written by another version of Driftline: give "
            "another directory, or remove this one"
        )

    def apply_frame(self, payload: bytes) -> list[LoggedRecord]:
        """Apply a frame and return its entries. Precondition: it is a frame of an input log."""
        entries, reserved, trimmed, ended = _decode_frame(payload)
        self.apply(entries, reserved, trimmed, ended)
        return entries

    def apply(
        self,
        entries: Sequence[LoggedRecord],
        reserved: int,
        trimmed: int,
        ended: Sequence[tuple[str, int]],
    ) -> None:
        """Apply a group of entries, or a part of one."""
        self.reserved, self.trimmed = reserved, trimmed
        if entries:
            self.last_time = entries[-1].time
            self.sequences.update((entry.producer, entry.sequence) for entry in entries)
        for producer, sequence in ended:
            self.sequences[producer] = sequence
            self.ended[producer] = None


class InputLog:
    """The log of one front.

    Opening raises Unavailable, and StateMismatch if the directory belongs to another run, or holds
    other files. Opening compares the lineages of the log's owner and of `owner`; if one of them has
    none, the identities. All methods raise Unavailable, and StateMismatch if the log is damaged.
    """

    def __init__(
        self,
        path: Path,
        identity: str,
        owner: DirectoryOwner = NO_OWNER,
        *,
        segment_bytes: int = SEGMENT_BYTES,
    ) -> None:
        self.name = str(path)
        self._path = path
        with translate_os_errors("input log", path):
            self._lock = _claim(path)
        try:
            with translate_os_errors("input log", path):
                self._check(identity, owner)
            beginning = LogState(identity).encode()
            self._log = SegmentLog(path, "input log", beginning, segment_bytes)
            with translate_os_errors("input log", path):
                self._last_times_before = {
                    number: LogState.decode(header_of(path, number), path).last_time
                    for number in self._log.numbers
                }
            """Number of each segment -> time of the last entry in earlier segments, in order."""
            self._index: dict[int, list[tuple[int, int]]] = {}
            """Number of a segment -> (time of the first entry, offset) of some of its frames."""
            self._state = LogState(identity)
            for frame in self._log.read(self._log.last):
                if frame.is_header:
                    self._state = LogState.decode(frame.payload, path)
                else:
                    self._state.apply_frame(frame.payload)
        except BaseException:
            self._lock.release()
            raise

    @property
    def last_time(self) -> int:
        """The time of the last entry; 0 if there is none, or all are trimmed."""
        last = self._state.last_time
        return last if last >= self.trimmed else 0

    @property
    def end_time(self) -> int:
        """The time after the last entry ever written, even a removed one; 0 if there was none."""
        last = self._state.last_time
        return last + 1 if last else 0

    @property
    def reserved(self) -> int:
        """After a restart, new records get times from this one on."""
        return self._state.reserved

    @property
    def trimmed(self) -> int:
        """Entries below this time are no longer read, and are removed by whole segments."""
        return self._state.trimmed

    def sequences(self) -> dict[str, int]:
        """Return the number of the last record of each producer."""
        return dict(self._state.sequences)

    def ended(self) -> list[str]:
        """Return the producers that send no more records."""
        return list(self._state.ended)

    def read(self, start: int, limit: int = -1) -> list[LoggedRecord]:
        """Return the first `limit` entries with time >= `start`, all if `limit` is negative.

        With a limit, the result ends early once it has `READ_BYTES` of data.
        """
        entries = self._entries(start)
        if limit < 0:
            return list(entries)
        limited: list[LoggedRecord] = []
        size = 0
        for entry in islice(entries, limit):
            limited.append(entry)
            size += len(entry.data)
            if size >= READ_BYTES:
                break
        return limited

    def count(self, start: int) -> int:
        """Count the records with time >= `start`, without marks; reads all of them."""
        return sum(1 for entry in self._entries(start) if entry.producer != MARKS)

    def write(self, group: WriteGroup) -> None:
        """Write a group durably, and remove segments that are no longer needed."""
        if self._log.torn:
            self._log.truncate_unsynced()
        state, entries = self._state, group.entries
        if group.again and entries and entries[-1].time == state.last_time:
            entries = ()  # the earlier attempt wrote them all
        times = [state.last_time, *(entry.time for entry in entries)]
        assert all(a < b for a, b in pairwise(times)), f"{self.name}: times have to grow"
        if self._log.is_full:
            self._log.roll(state.encode())
            self._last_times_before[self._log.last] = state.last_time
        *parts, last = _split_entries(entries)
        for part in parts:
            self._log.append(pack((state.reserved, state.trimmed, (), part)))
        self._log.append(pack((group.reserved, group.trim, group.ended, last)))
        self._log.sync()
        state.apply(entries, group.reserved, group.trim, group.ended)
        self._remove_below(group.trim)

    def trim(self, below: int) -> None:
        """Trim the log: entries below a time are no longer read."""
        self.write(WriteGroup((), self.reserved, max(below, self.trimmed)))

    def execute_job(self, job: IOJob) -> None:
        """Execute a job durably, for a driver."""
        if not isinstance(job, WriteGroup):
            raise TypeError(f"not a job for an input log: {job!r}")
        self.write(job)

    def close(self) -> None:
        """Release the directory."""
        self._log.close()
        self._lock.release()

    def _check(self, identity: str, owner: DirectoryOwner) -> None:
        """Check that the directory holds this log, and record its owner."""
        recorded_owner = read_owner(self._path / OWNER_FILE, self.name)
        if numbers := numbers_in(self._path):
            header = LogState.decode(header_of(self._path, numbers[-1]), self._path)
            # An owner identifies a log better than an identity, which may contain a flow's path.
            has_owners = bool(
                owner.lineage and recorded_owner is not None and recorded_owner.lineage
            )
            if header.identity != identity and not has_owners:
                raise StateMismatch(
                    f"{self.name} belongs to another flow or front: give another directory, or "
                    "remove this one"
                )
        renew_owner(self._path / OWNER_FILE, owner, self.name)

    def _remove_below(self, time: int) -> None:
        """Remove the oldest segments whose entries all have smaller times."""
        for number, last_before in list(self._last_times_before.items())[1:]:
            if last_before >= time:
                return
            self._log.remove_oldest()
            del self._last_times_before[number - 1]
            self._index.pop(number - 1, None)

    def _entries(self, start: int) -> Iterator[LoggedRecord]:
        start = max(start, self.trimmed)
        last_times = list(self._last_times_before.items())
        number = max((n for n, last_before in last_times if last_before < start), default=0)
        index_entries = self._index.setdefault(number, [])
        at = bisect_right(index_entries, start, key=lambda entry: entry[0]) - 1
        for frame in self._log.read(number, index_entries[at][1] if at >= 0 else 0):
            if frame.is_header:
                continue
            entries = _decode_frame(frame.payload)[0]
            if entries:
                self._index_frame(frame, entries[0].time)
            for entry in entries:
                if entry.time >= start:
                    yield entry

    def _index_frame(self, frame: StoredFrame, time: int) -> None:
        index_entries = self._index.setdefault(frame.number, [])
        if frame.offset >= (index_entries[-1][1] if index_entries else 0) + INDEX_BYTES:
            index_entries.append((time, frame.offset))


# Reading a log that may belong to another process.


class LogSummary(Struct, frozen=True):
    """Summary of a log."""

    owner: DirectoryOwner | None
    """None if the directory has no owner."""
    reserved: int
    trimmed: int
    entries: int
    """Number of entries that are not trimmed."""
    torn: int
    """Number of bytes at the end of the log that are not a complete frame."""


def check_log(path: Path) -> LogSummary:
    """Read and check the whole log, without changing it.

    Raises Unavailable, and StateMismatch if the log is damaged.
    """
    with translate_os_errors("input log", path):
        owner = read_owner(path / OWNER_FILE, str(path))
        state, torn = LogState(""), 0
        times: list[int] = []
        numbers = numbers_in(path)
        for number in numbers:
            end = 0
            for frame in frames_of(path, number):
                end = frame.end
                if not frame.is_header:
                    times += [entry.time for entry in state.apply_frame(frame.payload)]
                    continue
                header = LogState.decode(frame.payload, path)
                if number != numbers[0] and header != state:
                    raise damaged_at(path_of(path, number - 1), end)
                state = header
            torn = path_of(path, number).stat().st_size - end
            if torn and number != numbers[-1]:
                raise damaged_at(path_of(path, number), end)
    entries = sum(1 for time in times if time >= state.trimmed)
    return LogSummary(owner, state.reserved, state.trimmed, entries, torn)


def is_log(path: Path) -> bool:
    """Return whether a directory has the segments of a log."""
    return path.is_dir() and any(path.glob("segment-????????"))


class LoggedSource:
    """A front's input log as a source, to process or audit its records again.

    If the log is trimmed, a run over its records has to begin from a savepoint of the trimmed time
    or later. The log may be in use while it is read; records that arrive meanwhile may be missing.
    """

    def __init__(self, path: Path) -> None:
        self.name = path.name
        self.path = path

    def read(self, start: int) -> Iterator[tuple[int, object] | BadRecord]:
        """Yield all records with time >= `start`.

        Raises Unavailable, InputError if some of them were trimmed, and StateMismatch if the log is
        damaged or the directory holds no log.
        """
        with translate_os_errors("input log", self.path):
            numbers = numbers_in(self.path)
            if not numbers:
                raise StateMismatch(f"{self.path} is not an input log: it has no segment")
            state = LogState("")
            for frame in frames_of(self.path, numbers[-1]):
                if frame.is_header:
                    state = LogState.decode(frame.payload, self.path)
                else:
                    state.apply_frame(frame.payload)
            if start < state.trimmed:
                raise InputError(
                    self.name,
                    start,
                    f"records before {format_time(state.trimmed)} were removed, because snapshots "
                    "cover them: begin with --from-savepoint and a savepoint of that time or "
                    "later, which `driftline savepoint` writes",
                )
            for number in numbers:
                for frame in frames_of(self.path, number):
                    for entry in () if frame.is_header else _decode_frame(frame.payload)[0]:
                        if entry.time >= start:
                            yield record_of(entry, self.name)

    def progress(self) -> tuple[int, int] | None:
        """Return None: the size is unknown."""
        return None

    def identity(self) -> str:
        """Return a text with the path of the log."""
        return f"{INPUT_LOG} {self.path}"


def record_of(entry: LoggedRecord, file: str) -> tuple[int, object] | BadRecord:
    """Return the record of an entry. `file`: name of the log, for errors.

    An entry that exceeds the limits of a record becomes a bad record. An error instead would end
    the run, and each later start of it.
    """
    try:
        payload = unpack(entry.data)
    except MalformedMessage as error:  # the payload is nested too deep
        return BadRecord(entry.time, file, f"its entry in the log cannot be read: {error}", "")
    if entry.producer == PIPE and isinstance(payload, tuple):
        return pipe_record(entry.time, payload)
    if entry.producer != MARKS and (reason := why_invalid_record(payload, len(entry.data))):
        return make_bad_record(entry.time, payload, file, reason)
    return entry.time, payload


def pipe_record(time: int, payload: object) -> tuple[int, object] | BadRecord:
    """Return the record of a payload in the log of standard input; a tuple is a bad record."""
    match payload:
        case (int(number), str(reason), str(text), str(raw)):
            if number != time:
                reason += f" (it is record {number} of this input)"
            return BadRecord(time, PIPE, reason, text, truncate_raw(raw))
    return time, payload


def _split_entries(entries: Sequence[LoggedRecord]) -> list[list[LoggedRecord]]:
    """Split entries into parts for one frame each; at least one part."""
    parts: list[list[LoggedRecord]] = [[]]
    size = 0
    for entry in entries:
        if size >= FRAME_BYTES:
            parts.append([])
            size = 0
        parts[-1].append(entry)
        size += len(entry.data)
    return parts


def _decode_frame(payload: bytes) -> tuple[list[LoggedRecord], int, int, list[tuple[str, int]]]:
    """Return a frame's entries, reserved time, trimmed time, and ends of producers."""
    parts: Any = unpack(payload)
    reserved, trimmed, ended, entries = parts
    return [LoggedRecord(*entry) for entry in entries], reserved, trimmed, ended


def _claim(path: Path) -> Lock:
    """Create the directory durably, and return a lock on it.

    Raises StateMismatch if the directory holds other files, Unavailable if another process uses it.
    """
    make_directory(path)
    names = {file.name for file in path.iterdir() if not file.name.startswith(".")}
    if names - {"claim", OWNER_FILE} and not is_log(path):
        raise StateMismatch(
            f"{path} is not an input log, but holds other files: give the log a directory of its "
            "own"
        )
    return Lock(path / "claim", f"another process uses the input log {path}: stop that process")
