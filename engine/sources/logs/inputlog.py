"""The input log: the records that producers sent to a front, in LMDB, until no recovery needs them.

An entry is a record with its time, its producer, and its number among that producer's records.
Beside the entries, the log keeps the last number of each producer, and whether the producer has
ended, which outlive its entries, and two times: new records get times from *reserved* on, and
entries below *trimmed* are removed. A log whose reserved time is INFINITY has ended.

Invariants: a group of entries is written as a whole or not at all, together with the last numbers
of its producers, and with the ends of producers; so a record that comes twice is recognised, also
after a crash, and no record comes after the end of its producer. Times only grow.
One process has a log open at a time, and one of its threads writes; other threads may read.

Cost: one transaction (two fsyncs, some 7 ms on a disk) for a group, and some 3 microseconds for
an entry. Each producer takes some 50 bytes for ever: its name must never get a lower number again.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import ClassVar, NamedTuple
from zlib import crc32

import lmdb

from driftline.engine.durable import make_directory
from driftline.engine.errors import (
    ONCE_MENDED,
    DriftlineError,
    MalformedMessage,
    StateMismatch,
    Unavailable,
)
from driftline.engine.lmdbs import DAMAGE, every_row, open_environment, reason, reported
from driftline.engine.locks import Lock
from driftline.engine.wire.codec import pack, unpack
from driftline.engine.wire.marks import MARK, NOBODY, Mark
from driftline.engine.wire.party import Job

MAP_SIZE = 1 << 38
"""Bytes of address space; the file grows as it is filled."""

TRIM_MAX = 2000
"""How many entries one transaction removes at most: new records wait for it."""

READ_BYTES = 1 << 22
"""Bytes of entries from which on a read with a limit gives no more."""

PRODUCER_BYTES_MAX = 255

_FORMAT = "driftline input log 2"
_NUMBER = struct.Struct(">Q")
_ENDED = 1 << 63
"""Added to the last number of a producer that has ended; numbers are smaller."""
_RESERVED, _TRIMMED = b"reserved", b"trimmed"


class Entry(NamedTuple):
    """A record in the log; `sequence`: its number at its producer, `data`: its encoded payload."""

    time: int
    producer: str
    sequence: int
    data: bytes
    taken_us: int = 0
    """When it was taken, in microseconds since 1970; 0: its time says it, or nobody knows."""


@dataclass(frozen=True, slots=True)
class WriteGroup(Job):
    """Job: store entries and ends, set the reserved time, remove entries below `trim`.

    `ended`: producers that send no more records, and the number of the last record of each.
    `again`: a try before has failed, and may have been done all the same.

    Result: whether entries below `trim` are left, as one job removes only TRIM_MAX.
    """

    what: ClassVar[str] = "write records to its input log"

    entries: tuple[Entry, ...]
    reserved: int
    trim: int
    ended: tuple[tuple[str, int], ...] = ()
    again: bool = False


class InputLog:
    """The log of one front.

    Opening raises StateMismatch if the directory is not a log of this mark, or, without marks, of
    this identity; and Unavailable. All methods raise Unavailable, and StateMismatch if the log is
    damaged.
    """

    def __init__(
        self, path: Path, identity: str, mark: Mark = NOBODY, *, map_size: int = MAP_SIZE
    ) -> None:
        self.name = str(path)
        with self._reported():
            self._lock = _claim(path)
            try:
                self._env = open_environment(path, map_size, max_dbs=3)
                self._open(pack((_FORMAT, identity)), mark)
            except BaseException:
                self._lock.release()
                raise

    @property
    def last_time(self) -> int:
        """The time of the last entry; 0 if there is none."""
        with self._reported(), self._env.begin(db=self._entries) as txn, txn.cursor() as cursor:
            return self._number(cursor.key()) if cursor.last() else 0

    @property
    def reserved(self) -> int:
        """New records get times from this one on."""
        return self._get(_RESERVED)

    @property
    def trimmed(self) -> int:
        """Entries below this time were removed, or will be."""
        return self._get(_TRIMMED)

    def sequences(self) -> dict[str, int]:
        """Producer -> number of its last record."""
        return {name: number & ~_ENDED for name, number in self._last_numbers().items()}

    def ended(self) -> list[str]:
        """The producers that send no more records."""
        return [name for name, number in self._last_numbers().items() if number & _ENDED]

    def read(self, start: int, limit: int = -1) -> list[Entry]:
        """The first `limit` entries with time >= `start`, fewer if they are large; all of them if
        `limit` is negative."""
        with self._reported(), self._env.begin(db=self._entries) as txn, txn.cursor() as cursor:
            if not cursor.set_range(_NUMBER.pack(start)):
                return []
            rows = islice(cursor.iternext(), limit if limit >= 0 else None)
            entries: list[Entry] = []
            size = 0
            for key, value in rows:
                entries.append(self._decode(bytes(key), bytes(value)))
                size += len(value)
                if size >= READ_BYTES and limit >= 0:
                    break
            return entries

    def count(self, start: int) -> int:
        """The number of entries with time >= `start`; looks at each of their keys."""
        with self._reported(), self._env.begin(db=self._entries) as txn, txn.cursor() as cursor:
            if not cursor.set_range(_NUMBER.pack(start)):
                return 0
            return sum(1 for _ in cursor.iternext(values=False))

    def write(self, group: WriteGroup) -> bool:
        """Carry out a job durably. Returns whether entries below `group.trim` are left."""
        rows = [(_NUMBER.pack(entry.time), encode_entry(entry)) for entry in group.entries]
        last = {entry.producer: entry.sequence for entry in group.entries}
        with self._reported(), self._env.begin(write=True) as txn:
            with txn.cursor(self._entries) as cursor:
                if group.again and rows and cursor.last() and bytes(cursor.key()) == rows[-1][0]:
                    rows = []  # they are all here: the try before was done
                _, added = cursor.putmulti(rows, append=True)
                assert added == len(rows), f"{self.name}: times have to grow"
            ends = {producer: sequence | _ENDED for producer, sequence in group.ended}
            for producer, sequence in (last | ends).items():
                key = producer.encode()
                txn.put(key, encode_beside(key, sequence), db=self._producers)
            for key, time in ((_RESERVED, group.reserved), (_TRIMMED, group.trim)):
                txn.put(key, encode_beside(key, time), db=self._about)
            return self._trim(txn, group.trim)

    def trim(self, below: int) -> None:
        """Remove all entries below a time."""
        while self.write(WriteGroup((), self.reserved, max(below, self.trimmed))):
            pass

    def carry_out(self, job: Job) -> object:
        """Do a job durably, for a driver. Returns the job's result."""
        if not isinstance(job, WriteGroup):
            raise TypeError(f"not a job for an input log: {job!r}")
        return self.write(job)

    def close(self) -> None:
        """Release the directory."""
        self._env.close()
        self._lock.release()

    def _trim(self, txn: lmdb.Transaction, below: int) -> bool:
        bound = _NUMBER.pack(below)
        with txn.cursor(self._entries) as cursor:
            at_entry = cursor.first()
            for _ in range(TRIM_MAX):
                if not at_entry or bytes(cursor.key()) >= bound:
                    return False
                at_entry = cursor.delete()  # moves the cursor to the next entry
            return bool(at_entry) and bytes(cursor.key()) < bound

    def _open(self, mine: bytes, mark: Mark) -> None:
        with self._env.begin(write=True) as txn:
            new = not txn.stat(self._env.open_db(txn=txn))["entries"]
            self._about = self._env.open_db(b"about", txn=txn)
            self._entries = self._env.open_db(b"entries", txn=txn)
            self._producers = self._env.open_db(b"producers", txn=txn)
            if new:
                txn.put(b"identity", mine, db=self._about)
            identity, marked = (txn.get(key, db=self._about) for key in (b"identity", MARK))
            before = None if marked is None else Mark.decode(bytes(marked), self.name)
            # A mark says more than an identity, which may have the path of a flow.
            by_mark = bool(mark.lineage and before is not None and before.lineage)
            if identity != mine and not (by_mark and _is_log(identity)):
                raise StateMismatch(
                    f"{self.name} is not an input log, or belongs to another flow, front or "
                    "version of Driftline: give another directory, or remove this one"
                )
            txn.put(MARK, mark.over(before, self.name).encode(), db=self._about)

    def _get(self, key: bytes) -> int:
        with self._reported(), self._env.begin(db=self._about) as txn:
            value = txn.get(key)
            return 0 if value is None else decode_beside(key, value, self.name)

    def _last_numbers(self) -> dict[str, int]:
        """Producer -> number of its last record, plus `_ENDED` if the producer has ended."""
        with self._reported(), self._env.begin(db=self._producers) as txn, txn.cursor() as cursor:
            return {
                bytes(key).decode(errors="replace"): decode_beside(key, value, self.name)
                for key, value in cursor.iternext()
            }

    def _number(self, data: bytes) -> int:
        return decode_number(data, self.name)

    def _decode(self, key: bytes, value: bytes) -> Entry:
        return decode_entry(key, value, self.name)

    @contextmanager
    def _reported(self) -> Iterator[None]:
        """Raise errors of LMDB and of the operating system as StateMismatch or Unavailable."""
        try:
            yield
        except (lmdb.IncompatibleError, lmdb.DbsFullError) as error:
            raise StateMismatch(f"{self.name} is not an input log: {error}") from None
        except DAMAGE as error:
            raise StateMismatch(f"{self.name} is not an input log, or damaged: {error}") from None
        except lmdb.PanicError as error:
            raise DriftlineError(
                f"input log {self.name} cannot be written any more in this process: {error}. "
                f"{ONCE_MENDED}"
            ) from None
        except lmdb.MapFullError:
            raise Unavailable(
                f"input log {self.name} is full; it is trimmed when a snapshot is committed, or, "
                "with the policy none, when outputs are delivered: does the flow get so far?"
            ) from None
        except (lmdb.Error, OSError) as error:
            raise Unavailable(f"input log {self.name}: {reason(error)}") from None


@dataclass(frozen=True, slots=True)
class LogContents:
    """The mark of a log (None: it has none), the time that it is trimmed to, and its number of
    entries."""

    mark: Mark | None
    trimmed: int
    entries: int


def check_log(path: Path) -> LogContents:
    """Read and check the whole log; changes nothing.

    Raises StateMismatch if it is damaged, Unavailable.
    """
    name = str(path)
    about: dict[bytes, bytes] = {}
    entries = 0
    with reported(f"input log {path}", StateMismatch):
        for db, key, value in every_row(path, b"about", b"producers", b"entries"):
            if db == b"entries":
                entries += 1
                decode_entry(key, value, name)
            elif db == b"producers":
                decode_beside(key, value, name)
            else:
                about[key] = value
        mark = Mark.decode(about[MARK], name) if MARK in about else None
    trimmed = decode_beside(_TRIMMED, about[_TRIMMED], name) if _TRIMMED in about else 0
    return LogContents(mark, trimmed, entries)


def encode_number(number: int) -> bytes:
    """Encode a number for a log; the order of the bytes is the order of the numbers."""
    return _NUMBER.pack(number)


def decode_number(data: bytes, name: str) -> int:
    """Decode `encode_number` from log `name`. Raises StateMismatch."""
    try:
        (number,) = _NUMBER.unpack(data)
    except struct.error:
        raise StateMismatch(f"input log {name} is damaged: restore it") from None
    return int(number)


def encode_beside(key: bytes, number: int) -> bytes:
    """Encode a number that the log keeps under a key beside the entries; with a checksum."""
    data = _NUMBER.pack(number)
    return data + crc32(data, crc32(key)).to_bytes(4, "big")


def decode_beside(key: bytes, value: bytes, name: str) -> int:
    """Decode `encode_beside` from log `name`. Raises StateMismatch."""
    data = bytes(value[:-4])
    if crc32(data, crc32(key)) != int.from_bytes(value[-4:], "big"):
        raise StateMismatch(f"input log {name} is damaged at {bytes(key)!r}: restore it")
    return decode_number(data, name)


def decode_entry(key: bytes, value: bytes, name: str) -> Entry:
    """Decode `encode_entry` from log `name`; `key`: the encoded time. Raises StateMismatch."""
    time = decode_number(key, name)
    reason = "its checksum does not fit"
    if crc32(value[4:], crc32(key)) == int.from_bytes(value[:4], "big"):
        match unpack(value[4:]):
            case (str(producer), int(sequence), bytes(data)):
                return Entry(time, producer, sequence, data)
            case (str(producer), int(sequence), bytes(data), int(taken_us)):
                return Entry(time, producer, sequence, data, taken_us)
        reason = "it is not an entry"
    raise StateMismatch(f"input log {name} is damaged at time {time}: {reason}")


def encode_entry(entry: Entry) -> bytes:
    """Encode the value of an entry, with a checksum; its key is its encoded time."""
    taken = (entry.taken_us,) if entry.taken_us else ()
    body = pack((entry.producer, entry.sequence, entry.data, *taken))
    return crc32(body, crc32(_NUMBER.pack(entry.time))).to_bytes(4, "big") + body


def _is_log(identity: bytes | None) -> bool:
    """Whether this is the identity of a log in the format of now."""
    try:
        match unpack(bytes(identity or b"")):
            case (str(form), str()):
                return form == _FORMAT
    except MalformedMessage:
        pass
    return False


def _claim(path: Path) -> Lock:
    """Make the directory durably, and lock it until the lock is released.

    Raises StateMismatch if the directory holds other files, Unavailable if another process has it.
    """
    make_directory(path)
    names = {file.name for file in path.iterdir()} - {"claim", "lock.mdb"}
    if names and "data.mdb" not in names:
        raise StateMismatch(f"{path} holds other files: give a directory of its own to a log")
    return Lock(path / "claim", f"another process has the input log {path} open: stop it")
