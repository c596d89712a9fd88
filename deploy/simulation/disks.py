"""Simulated disks: dictionaries that survive a crash, and can tear and rot."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from random import Random
from typing import Protocol

from coordinator.registry import ClusterState, WriteState, decode_state, encode_state
from engine.errors import SnapshotDamaged, StateMismatch
from engine.flow import Flow
from engine.party import Job
from engine.snapshots import CommitSnapshot
from engine.store import PartStore

MERGE_AT = 3
"""Parts that pile up before they are merged: few, so that short runs merge often."""

ROWS_AT_ONCE = 20
"""Rows that one step of joining parts works off, for the same reason."""


class Disk(Protocol):
    """What survives a crash of a host."""

    def carry_out(self, job: Job) -> object:
        """Do a job. Raises what a real store raises."""

    def tear(self, job: Job, chance: Random) -> bool:
        """Leave a job done, not done or half done, as a crash would. Returns whether half done."""


class MemoryKeyValue:
    """A key-value store in memory."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.data: dict[bytes, bytes] = {}

    def read(self, key: bytes) -> bytes | None:
        return self.data.get(key)

    def all_keys(self) -> list[bytes]:
        return sorted(self.data)

    def write(self, puts: Mapping[bytes, bytes], deletes: Iterable[bytes]) -> None:
        """All of it or nothing, as a transaction of LMDB."""
        for key in deletes:
            del self.data[key]
        self.data.update(puts)


class NodeDisk:
    """The snapshot store of a simulated node."""

    def __init__(self, name: str, flow: Flow, counted: Counter[str]) -> None:
        self.kv = MemoryKeyValue(name)
        self.counted = counted
        self._store = PartStore(self.kv, flow, MERGE_AT, ROWS_AT_ONCE)

    def carry_out(self, job: Job) -> object:
        before = len(self.kv.data)
        result = self._store.carry_out(job)
        if isinstance(job, CommitSnapshot) and len(self.kv.data) < before:
            self.counted["merged snapshots"] += 1
        return result

    def tear(self, job: Job, chance: Random) -> bool:
        """A job is one transaction: it is done or not."""
        if chance.random() < 0.5:
            with suppress(SnapshotDamaged):
                self._store.carry_out(job)
        return False

    def rot(self, chance: Random) -> bool:
        """Flip a bit of something. Returns whether there was anything."""
        if not self.kv.data:
            return False
        key = chance.choice(sorted(self.kv.data))
        value = bytearray(self.kv.data[key])
        if not value:
            return False
        value[chance.randrange(len(value))] ^= 1 << chance.randrange(8)
        self.kv.data[key] = bytes(value)
        return True


class MasterDisk:
    """The registry of a simulated master."""

    def __init__(self, counted: Counter[str]) -> None:
        self.data: bytes | None = None
        self.counted = counted

    def read(self) -> ClusterState | None:
        """The state that was written last."""
        return None if self.data is None else decode_state(self.data, "simulated")

    def carry_out(self, job: Job) -> object:
        assert isinstance(job, WriteState)
        found = self.read() or ClusterState(job.state.identity)
        if found.version != job.state.version - 1:
            raise StateMismatch("another master has taken over")
        self._count(found, job.state)
        self.data = encode_state(job.state)
        return None

    def _count(self, before: ClusterState, now: ClusterState) -> None:
        if now.incarnation == before.incarnation:
            self.counted["committed snapshot"] += 1
        elif before.incarnation > 0:
            self.counted["recovery from a snapshot" if now.snapshots else "recovery"] += 1
            if now.snapshots != before.snapshots:
                self.counted["older snapshot used"] += 1

    def tear(self, job: Job, chance: Random) -> bool:
        """A registry is replaced atomically: it is done or not."""
        if chance.random() < 0.5:
            with suppress(StateMismatch):
                self.carry_out(job)
        return False
