"""Simulated disks: dictionaries that survive a crash, and can tear and rot."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from random import Random

from coordinator.registry import ClusterState, WriteState, decode_state, encode_state
from engine.errors import StateMismatch
from engine.party import Job
from engine.snapshots import StoreSnapshot
from engine.store import PartStore, as_part


class MemoryKeyValue:
    """A key-value store in memory."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.data: dict[bytes, bytes] = {}

    def read(self, key: bytes) -> bytes | None:
        return self.data.get(key)

    def keys(self) -> list[bytes]:
        return sorted(self.data)

    def write(self, puts: Mapping[bytes, bytes], deletes: Iterable[bytes]) -> None:
        for key in deletes:
            del self.data[key]
        self.data.update(puts)


class NodeDisk:
    """The snapshot store of a simulated node."""

    def __init__(self, name: str, merge: Callable[[list[bytes]], bytes]) -> None:
        self.kv = MemoryKeyValue(name)
        self._store = PartStore(self.kv, merge)

    def carry_out(self, job: Job) -> object:
        return self._store.carry_out(job)

    def tear(self, job: Job, chance: Random) -> None:
        """Write some of a part, and of its last value only the beginning."""
        if not isinstance(job, StoreSnapshot):
            return
        part = list(as_part(job.number, job.segments, job.meta).items())
        chance.shuffle(part)
        for key, value in part[: chance.randrange(len(part) + 1)]:
            self.kv.data[key] = value
            last = key
        if self.kv.data and part and chance.random() < 0.5:
            last = part[0][0]
            self.kv.data[last] = part[0][1][: chance.randrange(len(part[0][1]) + 1)]

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

    def __init__(self) -> None:
        self.data: bytes | None = None

    def read(self) -> ClusterState | None:
        """The state that was written last."""
        return None if self.data is None else decode_state(self.data, "simulated")

    def carry_out(self, job: Job) -> object:
        assert isinstance(job, WriteState)
        found = self.read()
        if (found.version if found else 0) != job.state.version - 1:
            raise StateMismatch("another master has taken over")
        self.data = encode_state(job.state)
        return None

    def tear(self, job: Job, chance: Random) -> None:
        """A registry is replaced atomically: it is done or not."""
        if chance.random() < 0.5:
            self.carry_out(job)
