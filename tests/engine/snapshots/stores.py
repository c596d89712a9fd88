"""Stores of snapshots that are filled and read, in memory or on a disk."""

from collections.abc import Iterable

from driftline.engine.errors import Unavailable
from driftline.engine.snapshots.jobs import CommitSnapshot, Loaded, LoadSnapshot, StoreSnapshot
from driftline.engine.snapshots.store import LmdbStore, PartStore
from driftline.simulation.world.disks import MemoryKeyValue
from tests.engine.snapshots.tables import FLOW, capture, change, held, loaded, tables


def part_store(kv: MemoryKeyValue | LmdbStore, merge_at: int = 3) -> PartStore:
    return PartStore(kv, FLOW, merge_at)


LATEST = -1


def load_job(number: int) -> LoadSnapshot:
    return LoadSnapshot(0, or_later=True) if number == LATEST else LoadSnapshot(number)


def load(store: PartStore, number: int) -> tuple[bytes, list[str]]:
    found = store.carry_out(load_job(number))
    assert isinstance(found, Loaded)
    return found.meta, loaded(found.segments)


def fill(store: PartStore, numbers: Iterable[int], commit: bool = True) -> dict[int, list[str]]:
    """Store snapshots; what each of them holds."""
    found = tables()
    shown: dict[int, list[str]] = {}
    before = 0
    for number in numbers:
        change(found, [("append", "a", number), ("set", "bcdef"[number % 5], number)])
        store.carry_out(StoreSnapshot(number, capture(found), b"meta %d" % number))
        if commit:
            store.carry_out(CommitSnapshot(number, before))
        shown[number] = held(found)
        before = number
    return shown


class Unsteady(MemoryKeyValue):
    """Cannot be read now and then."""

    failing = False

    def read(self, key: bytes) -> bytes | None:
        if self.failing:
            raise Unavailable("the disk does not answer")
        return super().read(key)
