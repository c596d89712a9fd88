"""The input log: what producers sent to a front, in LMDB, until no snapshot needs it any more.

An entry is a record with its time, its producer, and its number among that producer's records.
Beside the entries stand the last number of each producer, which outlives its entries, and two
times: *reserved*, below which no new record gets its time any more, and *trimmed*, below which
entries are gone. A log with everything reserved has ended.

Invariants: a group of entries is there as a whole or not at all, together with the numbers of
its producers; so a record that comes twice is recognised, whatever was interrupted when. Times
only grow. One process has a log open at a time, and one thread writes it; others may read.

Cost: one transaction (two fsyncs, some 7 ms on a disk) for a group, and some 3 microseconds for
an entry. A producer takes some 50 bytes for ever: ids belong to producers, not to their runs.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

import lmdb

from driftline.engine.durable import make_directory
from driftline.engine.errors import StateMismatch, Unavailable
from driftline.engine.lmdbs import DAMAGE, every_row, open_environment, reported, seal
from driftline.engine.locks import Lock
from driftline.engine.wire.codec import pack, unpack
from driftline.engine.wire.marks import MARK, NOBODY, Mark
from driftline.engine.wire.party import Job

MAP_SIZE = 1 << 38
"""Bytes of address space; the file grows only as it is filled."""

TRIM_MAX = 2000
"""Entries that one transaction removes at most: records wait for it."""

PRODUCER_BYTES_MAX = 255

_FORMAT = "driftline input log 2"
_NUMBER = struct.Struct(">Q")
_RESERVED, _TRIMMED = b"reserved", b"trimmed"


class Entry(NamedTuple):
    """A record as it is stored; `data` is its encoded payload."""

    time: int
    producer: str
    sequence: int
    data: bytes


@dataclass(frozen=True, slots=True)
class WriteGroup(Job):
    """Store entries, reserve times, forget entries below `trim`. Result: whether some are left."""

    entries: tuple[Entry, ...]
    reserved: int
    trim: int


class InputLog:
    """The log of one front. Raises StateMismatch, Unavailable on opening."""

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
        """New records get times from here on."""
        return self._get(_RESERVED)

    @property
    def trimmed(self) -> int:
        """Entries below this time are gone, or about to go."""
        return self._get(_TRIMMED)

    def sequences(self) -> dict[str, int]:
        """The last number of each producer."""
        with self._reported(), self._env.begin(db=self._producers) as txn, txn.cursor() as cursor:
            return {
                bytes(key).decode(errors="replace"): decode_beside(key, value, self.name)
                for key, value in cursor.iternext()
            }

    def read(self, start: int, limit: int = -1) -> list[Entry]:
        """The first entries with time >= `start`, all if there is no limit."""
        with self._reported(), self._env.begin(db=self._entries) as txn, txn.cursor() as cursor:
            if not cursor.set_range(_NUMBER.pack(start)):
                return []
            rows = islice(cursor.iternext(), limit if limit >= 0 else None)
            return [self._decode(bytes(key), bytes(value)) for key, value in rows]

    def write(self, group: WriteGroup) -> bool:
        """Carry out a job durably. Returns whether entries are left that should go."""
        rows = [(_NUMBER.pack(entry.time), encode_entry(entry)) for entry in group.entries]
        last = {entry.producer: entry.sequence for entry in group.entries}
        with self._reported(), self._env.begin(write=True) as txn:
            with txn.cursor(self._entries) as cursor:
                _, added = cursor.putmulti(rows, append=True)
                assert added == len(rows), f"{self.name}: times have to grow"
            for producer, sequence in last.items():
                key = producer.encode()
                txn.put(key, encode_beside(key, sequence), db=self._producers)
            for key, time in ((_RESERVED, group.reserved), (_TRIMMED, group.trim)):
                txn.put(key, encode_beside(key, time), db=self._about)
            seal(txn, self._about)
            return self._trim(txn, group.trim)

    def trim(self, below: int) -> None:
        """Remove all entries below a time that no snapshot needs any more."""
        while self.write(WriteGroup((), self.reserved, max(below, self.trimmed))):
            pass

    def carry_out(self, job: Job) -> object:
        """What a runtime's background thread calls."""
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
            there = cursor.first()
            for _ in range(TRIM_MAX):
                if not there or bytes(cursor.key()) >= bound:
                    return False
                there = cursor.delete()  # and go to the next one
            return bool(there) and bytes(cursor.key()) < bound

    def _open(self, mine: bytes, mark: Mark) -> None:
        with self._env.begin(write=True) as txn:
            new = not txn.stat(self._env.open_db(txn=txn))["entries"]
            self._about = self._env.open_db(b"about", txn=txn)
            self._entries = self._env.open_db(b"entries", txn=txn)
            self._producers = self._env.open_db(b"producers", txn=txn)
            if new:
                txn.put(b"identity", mine, db=self._about)
            if txn.get(b"identity", db=self._about) != mine:
                raise StateMismatch(
                    f"{self.name} is not an input log, or that of another flow, front or version "
                    "of Driftline: give another directory, or remove this one"
                )
            marked = txn.get(MARK, db=self._about)
            before = None if marked is None else Mark.decode(bytes(marked), self.name)
            txn.put(MARK, mark.over(before, self.name).encode(), db=self._about)
            seal(txn, self._about)

    def _get(self, key: bytes) -> int:
        with self._reported(), self._env.begin(db=self._about) as txn:
            value = txn.get(key)
            return 0 if value is None else decode_beside(key, value, self.name)

    def _number(self, data: bytes) -> int:
        return decode_number(data, self.name)

    def _decode(self, key: bytes, value: bytes) -> Entry:
        return decode_entry(key, value, self.name)

    @contextmanager
    def _reported(self) -> Iterator[None]:
        """Tell what LMDB and the operating system refuse as errors of ours."""
        try:
            yield
        except (lmdb.IncompatibleError, lmdb.DbsFullError) as error:
            raise StateMismatch(f"{self.name} is not an input log: {error}") from None
        except DAMAGE as error:
            raise StateMismatch(f"{self.name} is no input log, or damaged: {error}") from None
        except lmdb.MapFullError:
            raise Unavailable(
                f"input log {self.name} is full; it is trimmed when a snapshot is committed: "
                "does the flow take any?"
            ) from None
        except (lmdb.Error, OSError) as error:
            raise Unavailable(f"input log {self.name}: {error}") from None


@dataclass(frozen=True, slots=True)
class LogContents:
    """What a log says of itself."""

    mark: Mark | None
    reserved: int
    trimmed: int
    entries: int


def check_log(path: Path) -> LogContents:
    """Read everything, and change nothing. Raises StateMismatch, Unavailable."""
    name = str(path)
    about: dict[bytes, bytes] = {}
    entries = 0
    with reported(f"input log {path}", StateMismatch):
        for db, key, value in every_row(path, b"about", b"producers", b"entries"):
            if db == b"entries":
                decode_entry(key, value, name)
                entries += 1
            elif db == b"producers":
                decode_beside(key, value, name)
            else:
                about[key] = value
    mark = Mark.decode(about[MARK], name) if MARK in about else None
    reserved, trimmed = (
        decode_beside(key, about[key], name) if key in about else 0 for key in (_RESERVED, _TRIMMED)
    )
    return LogContents(mark, reserved, trimmed, entries)


def encode_number(number: int) -> bytes:
    """A number as it is in a log; their order is that of the bytes."""
    return _NUMBER.pack(number)


def decode_number(data: bytes, name: str) -> int:
    """A number in log `name`. Raises StateMismatch."""
    try:
        (number,) = _NUMBER.unpack(data)
    except struct.error:
        raise StateMismatch(f"input log {name} is damaged: restore it") from None
    return int(number)


def encode_beside(key: bytes, number: int) -> bytes:
    """A number that stands beside the entries under a key, with a checksum."""
    data = _NUMBER.pack(number)
    return data + crc32(data, crc32(key)).to_bytes(4, "big")


def decode_beside(key: bytes, value: bytes, name: str) -> int:
    """What `encode_beside` made, in log `name`. Raises StateMismatch."""
    data = bytes(value[:-4])
    if crc32(data, crc32(key)) != int.from_bytes(value[-4:], "big"):
        raise StateMismatch(f"input log {name} is damaged at {bytes(key)!r}: restore it")
    return decode_number(data, name)


def decode_entry(key: bytes, value: bytes, name: str) -> Entry:
    """An entry of log `name`. Raises StateMismatch."""
    time = decode_number(key, name)
    reason = "its checksum does not fit"
    if crc32(value[4:], crc32(key)) == int.from_bytes(value[:4], "big"):
        match unpack(value[4:]):
            case (str(producer), int(sequence), bytes(data)):
                return Entry(time, producer, sequence, data)
        reason = "it is not an entry"
    raise StateMismatch(f"input log {name} is damaged at time {time}: {reason}")


def encode_entry(entry: Entry) -> bytes:
    """The value of an entry in a log; its key is its time."""
    body = pack((entry.producer, entry.sequence, entry.data))
    return crc32(body, crc32(_NUMBER.pack(entry.time))).to_bytes(4, "big") + body


def _claim(path: Path) -> Lock:
    """Make the directory durable and ours until the lock is released."""
    make_directory(path)
    found = {file.name for file in path.iterdir()} - {"claim", "lock.mdb"}
    if found and "data.mdb" not in found:
        raise StateMismatch(f"{path} holds other files: give a directory of its own to a log")
    return Lock(path / "claim", f"another process has the input log {path} open: stop it")
