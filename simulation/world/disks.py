"""Simulated disks: dictionaries that survive a crash, and whose bits may flip.

A job is atomic, like a transaction of LMDB or the replacement of a file.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping
from random import Random
from typing import Protocol
from zlib import crc32

from driftline.connectors.logs.inputlog import MARKS, LoggedRecord, WriteGroup
from driftline.coordinator.registry import (
    ClusterState,
    WriteState,
    decode_state,
    encode_state,
    may_replace,
)
from driftline.engine.errors import StateMismatch
from driftline.engine.flow.flow import Flow
from driftline.engine.snapshots.jobs import MergeParts
from driftline.engine.snapshots.store import PartStore, part_of
from driftline.engine.wire.codec import pack, unpack
from driftline.engine.wire.role import IOJob

MERGE_AT = 3
"""Number of parts at which a store merges the parts: few, so that short runs merge often."""

ROWS_AT_ONCE = 20
"""Rows per step of a merge of parts: few, so that a merge takes several steps."""


class Disk(Protocol):
    """Storage of a host: it survives crashes."""

    def execute_job(self, job: IOJob) -> object:
        """Execute a job. Return its result; raises the errors of the real store."""

    def open(self) -> None:
        """Open the store for a new process, without any state in memory of an earlier one."""

    def flip_bit(self, rng: Random) -> str:
        """Flip one stored bit. Return the name of the damaged store; "" if none was damaged."""


class MemoryKeyValue:
    """Key-value store in memory."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.data: dict[bytes, bytes] = {}

    def read(self, key: bytes) -> bytes | None:
        return self.data.get(key)

    def read_slice(self, key: bytes, offset: int, size: int) -> bytes:
        return self.data.get(key, b"")[offset : offset + size]

    def all_keys(self) -> list[bytes]:
        return sorted(self.data)

    def write(self, puts: Mapping[bytes, bytes], deletes: Iterable[bytes]) -> None:
        """Delete and put, atomically, like a transaction of LMDB."""
        for key in deletes:
            self.data.pop(key, None)
        self.data.update(puts)


class NodeDisk:
    """Snapshot store of a simulated node."""

    def __init__(self, name: str, flow: Flow, counted: Counter[str]) -> None:
        self.kv = MemoryKeyValue(name)
        self.flow = flow
        self.counted = counted
        self.damaged_part = 0
        """Number of the part that was damaged last; 0: no part was damaged."""
        self.open()

    def execute_job(self, job: IOJob) -> object:
        rows_before = len(self.kv.data)
        result = self._store.execute_job(job)
        if isinstance(job, MergeParts) and len(self.kv.data) < rows_before:
            self.counted["merged snapshots"] += 1
        return result

    def open(self) -> None:
        self._store = PartStore(self.kv, self.flow, MERGE_AT, ROWS_AT_ONCE)

    def flip_bit(self, rng: Random) -> str:
        if not self.kv.data:
            return ""
        key = rng.choice(sorted(self.kv.data))
        if not self.kv.data[key]:
            return ""
        self.kv.data[key] = flipped(self.kv.data[key], rng)
        self.damaged_part = part_of(key)
        return self.kv.name

    @property
    def parts(self) -> set[int]:
        """Numbers of the stored parts."""
        return set(map(part_of, self.kv.data))


class MasterDisk:
    """Registry of a simulated master."""

    def __init__(self, counted: Counter[str]) -> None:
        self.data: bytes | None = None
        self.written: ClusterState | None = None
        """The last state that a master wrote, even if it was damaged since."""
        self.counted = counted

    def read(self) -> ClusterState | None:
        """Return the stored state; None before the first write. Raises StateMismatch if damaged."""
        return None if self.data is None else decode_state(self.data, "of the simulation")

    def execute_job(self, job: IOJob) -> object:
        assert isinstance(job, WriteState)
        previous = self.read() or ClusterState(job.state.identity)
        if not may_replace(job.state, previous, again=job.again):
            raise StateMismatch("another master has taken over")
        if previous.version == job.state.version:  # a retry of a write that was done
            self.counted["repeated write of the registry"] += 1
            return None
        self._count(previous, job.state)
        self.written = job.state
        self.data = encode_state(job.state)
        return None

    def open(self) -> None:
        pass

    def flip_bit(self, rng: Random) -> str:
        if self.data is None:
            return ""
        self.data = flipped(self.data, rng)
        return "registry"

    def _count(self, previous: ClusterState, state: ClusterState) -> None:
        """Count the event that a write records."""
        if state.outcome is not None:
            self.counted["run ended"] += 1
        elif state.snapshots != previous.snapshots and state.incarnation == previous.incarnation:
            self.counted["committed snapshot"] += 1
        elif previous.layout and state.layout != previous.layout:
            self.counted["rescaled"] += 1
        elif state.incarnation > previous.incarnation > 0:
            start = "a snapshot" if state.snapshots else "the beginning"
            self.counted[f"recovery from {start}"] += 1
            if state.snapshots != previous.snapshots:
                self.counted["older snapshot used"] += 1


class LogDisk:
    """Input log of a simulated front: an `InputLog` in memory."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.entries: dict[int, bytes] = {}
        """Time -> encoded entry."""
        self.all_written: list[LoggedRecord] = []
        """All entries ever written, including entries that were trimmed since."""
        self.reserved = 0
        self.trimmed = 0
        self._times: list[int] = []
        self._sequences: dict[str, int] = {}
        self._ended: dict[str, None] = {}

    @property
    def last_time(self) -> int:
        """Time of the last entry; 0 if there is none."""
        return self._times[-1] if self._times else 0

    def sequences(self) -> dict[str, int]:
        """Return producer -> number of its last record."""
        return dict(self._sequences)

    def ended(self) -> list[str]:
        """Return the producers that send no more records."""
        return list(self._ended)

    def read(self, start: int, limit: int = -1) -> list[LoggedRecord]:
        """Return the first `limit` entries with time >= `start`; all if `limit` is negative.

        Raises StateMismatch for a damaged entry.
        """
        begin = bisect_left(self._times, start)
        times = self._times[begin : begin + limit if limit >= 0 else None]
        return [self._decode(time) for time in times]

    def count(self, start: int) -> int:
        """Return the number of records with time >= `start`, without marks."""
        return sum(1 for entry in self.read(start) if entry.producer != MARKS)

    def execute_job(self, job: IOJob) -> object:
        assert isinstance(job, WriteGroup)
        is_done = job.again and job.entries and job.entries[-1].time == self.last_time
        for entry in () if is_done else job.entries:
            assert entry.time > self.last_time, "times have to grow"
            self.entries[entry.time] = _encode(entry)
            self.all_written.append(entry)
            self._sequences[entry.producer] = entry.sequence
            self._times.append(entry.time)
        for producer, sequence in job.ended:
            assert sequence == self._sequences[producer], "an end comes after the last record"
            self._ended[producer] = None
        self.reserved, self.trimmed = job.reserved, job.trim
        trimmed = bisect_left(self._times, job.trim)
        for time in self._times[:trimmed]:
            del self.entries[time]
        del self._times[:trimmed]
        return None

    def open(self) -> None:
        pass

    def flip_bit(self, rng: Random) -> str:
        if not self._times:
            return ""
        time = rng.choice(self._times)
        self.entries[time] = flipped(self.entries[time], rng)
        return self.name

    def _decode(self, time: int) -> LoggedRecord:
        data = self.entries[time]
        if crc32(data[4:]) != int.from_bytes(data[:4], "big"):
            raise StateMismatch(f"{self.name} is damaged at time {time}")
        return LoggedRecord(*unpack(data[4:]))  # type: ignore[misc]


def _encode(entry: LoggedRecord) -> bytes:
    data = pack(tuple(entry))
    return crc32(data).to_bytes(4, "big") + data


def flipped(data: bytes, rng: Random) -> bytes:
    """Return the bytes with one bit flipped."""
    changed = bytearray(data)
    changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)
