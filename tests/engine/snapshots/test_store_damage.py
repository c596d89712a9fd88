"""Damage to a store is noticed wherever it is, and is not made worse."""

from pathlib import Path

import pytest

from driftline.engine.errors import SnapshotDamaged
from driftline.engine.snapshots.jobs import LoadSnapshot
from driftline.engine.snapshots.store import NEWEST, LmdbStore
from driftline.simulation.world.disks import MemoryKeyValue
from tests.engine.snapshots.stores import LATEST, fill, load, load_job, part_store


@pytest.mark.parametrize("merge_at", [2, 99])
def test_a_damaged_byte_anywhere_is_detected(merge_at: int) -> None:
    kv = MemoryKeyValue("memory")
    fill(part_store(kv, merge_at), range(1, 5))
    assert len(kv.data) >= 4
    for key, value in sorted(kv.data.items()):
        number, said = (LATEST, "newest part") if key == NEWEST else (4, r"snapshot \d")
        damaged = [
            value[:at] + bytes([value[at] ^ 1 << at % 8]) + value[at + 1 :]
            for at in range(len(value))
        ]
        for changed in [*damaged, value[:-1], value + b"\0", b""]:
            kv.data[key] = changed
            with pytest.raises(SnapshotDamaged, match=said):
                part_store(kv).carry_out(load_job(number))
        kv.data[key] = value
    assert load(part_store(kv), 4)[0] == b"meta 4"


def test_a_damaged_value_on_the_disk_is_detected(tmp_path: Path) -> None:
    store = LmdbStore(tmp_path, "me")
    fill(part_store(store), range(1, 5))
    for key in store.all_keys():
        value = store.read(key)
        assert value
        store.write({key: value[:-1] + bytes([value[-1] ^ 1])}, ())
        with pytest.raises(SnapshotDamaged, match=str(tmp_path)):
            part_store(store).carry_out(LoadSnapshot(0, or_later=True))
        store.write({key: value}, ())
    assert load(part_store(store), 4)[0] == b"meta 4"
    store.close()


def test_a_missing_segment_is_detected() -> None:
    kv = MemoryKeyValue("memory")
    fill(part_store(kv, 99), range(1, 4))
    for key in sorted(kv.data):
        value = kv.data.pop(key)
        with pytest.raises(SnapshotDamaged):
            part_store(kv).carry_out(LoadSnapshot(0, or_later=True))
        kv.data[key] = value


def test_a_missing_part_in_the_middle_is_detected() -> None:
    kv = MemoryKeyValue("memory")
    fill(part_store(kv, 99), range(1, 4))
    for key in [key for key in kv.data if int.from_bytes(key[:8], "big") == 2]:
        del kv.data[key]
    with pytest.raises(SnapshotDamaged):
        part_store(kv).carry_out(LoadSnapshot(3))


def test_damage_does_not_reach_the_snapshot_before() -> None:
    kv = MemoryKeyValue("memory")
    shown = fill(part_store(kv, 99), range(1, 4))
    for key in [key for key in kv.data if int.from_bytes(key[:8], "big") == 3]:
        kv.data[key] = b"damaged"
    with pytest.raises(SnapshotDamaged):
        part_store(kv).carry_out(LoadSnapshot(3))
    assert load(part_store(kv), 2) == (b"meta 2", shown[2])


@pytest.mark.parametrize("damage", [b"", b"damage", None])
@pytest.mark.parametrize("whole", [True, False])
def test_a_newest_snapshot_that_is_damaged_is_refused_and_not_passed_over(
    damage: bytes | None, whole: bool
) -> None:
    """Parts are written as a whole or not at all: one that is damaged has been there."""
    kv = MemoryKeyValue("memory")
    fill(part_store(kv), range(1, 4), commit=False)
    newest = [key for key in kv.data if int.from_bytes(key[:8], "big") == 3]
    for key in newest if whole else newest[-1:]:
        if damage is None:
            del kv.data[key]
        else:
            kv.data[key] = damage
    before = dict(kv.data)
    for _ in range(2):
        with pytest.raises(SnapshotDamaged):
            part_store(kv).carry_out(LoadSnapshot(0, or_later=True))
    assert kv.data == before


def test_damage_before_the_latest_snapshot_is_damage() -> None:
    kv = MemoryKeyValue("memory")
    fill(part_store(kv), range(1, 4), commit=False)
    for key in [key for key in kv.data if int.from_bytes(key[:8], "big") == 2]:
        kv.data[key] = b"damaged"
    with pytest.raises(SnapshotDamaged):
        part_store(kv).carry_out(LoadSnapshot(0, or_later=True))


def test_a_damaged_store_is_not_made_worse_by_merging() -> None:
    kv = MemoryKeyValue("memory")
    store = part_store(kv, merge_at=2)
    fill(store, range(1, 3))
    key = next(key for key in kv.all_keys() if key != NEWEST)
    kv.data[key] = b"damaged"
    fill(store, range(3, 8))
    with pytest.raises(SnapshotDamaged):
        store.carry_out(LoadSnapshot(7))
