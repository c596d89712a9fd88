"""Snapshot store: a snapshot loads completely, as it was taken, or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driftline.engine.errors import SnapshotDamaged, StateMismatch, Unavailable
from driftline.engine.keygroups import Owners
from driftline.engine.snapshots.jobs import (
    ListParts,
    Loaded,
    LoadSnapshot,
    MergeParts,
    ReadSlice,
    StoreSnapshot,
    Vacate,
)
from driftline.engine.snapshots.merging import restore, restore_owned_rows
from driftline.engine.snapshots.store import NEWEST, LmdbStore, PartStore
from driftline.simulation.world.disks import MemoryKeyValue
from tests.engine.snapshots.tables import (
    FLOW,
    LATEST,
    Step,
    UnsteadyStore,
    capture,
    change,
    fill,
    held,
    load,
    load_job,
    part_store,
    steps,
    tables,
)


def test_stored_snapshots_survive_closing_and_reopening(tmp_path: Path) -> None:
    store = LmdbStore(tmp_path / "state", "me")
    shown = fill(part_store(store), range(1, 8))
    store.close()
    store = LmdbStore(tmp_path / "state", "me")
    for number in (7, 6):
        assert load(part_store(store), number) == (b"meta %d" % number, shown[number])
    store.close()


def test_directory_of_another_flow_is_rejected_and_unchanged(tmp_path: Path) -> None:
    store = LmdbStore(tmp_path, "me")
    shown = fill(part_store(store), [1])
    store.close()
    with pytest.raises(StateMismatch, match="--state"):
        LmdbStore(tmp_path, "somebody else")
    store = LmdbStore(tmp_path, "me")
    assert load(part_store(store), 1)[1] == shown[1]
    store.close()


def test_unopenable_directory_raises_unavailable(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file")
    with pytest.raises(Unavailable, match="state directory"):
        LmdbStore(tmp_path / "state", "me")


def test_missing_snapshot_is_not_replaced_by_an_older_one() -> None:
    kv = MemoryKeyValue("memory")
    fill(part_store(kv), range(1, 3))
    with pytest.raises(SnapshotDamaged, match="snapshot 5 is missing"):
        part_store(kv).execute_job(LoadSnapshot(5))


@pytest.mark.parametrize("number", [LATEST, 3])
def test_temporary_read_failure_does_not_damage_the_store(number: int) -> None:
    kv = UnsteadyStore("memory")
    store = part_store(kv, 2)
    shown = fill(store, range(1, 4), commit=False)
    kv.failing = True
    with pytest.raises(Unavailable):
        store.execute_job(load_job(number))
    with pytest.raises(Unavailable):
        store.execute_job(MergeParts(3, 2))
    kv.failing = False
    assert load(store, number) == (b"meta 3", shown[3])
    store.execute_job(MergeParts(3, 2))
    assert load(store, number) == (b"meta 3", shown[3])


def test_abandoned_snapshot_is_not_loaded_for_a_reused_number() -> None:
    """The numbers of abandoned snapshots are reused."""
    kv = MemoryKeyValue("memory")
    store = part_store(kv)
    store.execute_job(StoreSnapshot(1, {}, b"", snapshot_incarnation=1))
    store.execute_job(StoreSnapshot(2, {}, b"given up", snapshot_incarnation=1))
    copy = dict(kv.data)
    store.execute_job(LoadSnapshot(1, snapshot_incarnation=1))
    store.execute_job(StoreSnapshot(2, {}, b"committed", snapshot_incarnation=2))
    loaded = store.execute_job(LoadSnapshot(2, snapshot_incarnation=2))
    assert isinstance(loaded, Loaded)
    assert loaded.meta == b"committed"
    kv.data = copy
    with pytest.raises(SnapshotDamaged, match="memory is an old copy"):
        part_store(kv).execute_job(LoadSnapshot(2, snapshot_incarnation=2))
    with pytest.raises(SnapshotDamaged, match="memory is an old copy: its newest part is 2"):
        part_store(kv).execute_job(LoadSnapshot(3, allow_later=True))


# Damage anywhere in a store is detected, and not made worse


@pytest.mark.parametrize("merge_at", [2, 99])
def test_damaged_byte_anywhere_is_detected(merge_at: int) -> None:
    kv = MemoryKeyValue("memory")
    fill(part_store(kv, merge_at), range(1, 5))
    assert len(kv.data) >= 4
    for key, value in sorted(kv.data.items()):
        number, expected_text = (LATEST, "newest part") if key == NEWEST else (4, r"snapshot \d")
        damaged = [
            value[:at] + bytes([value[at] ^ 1 << at % 8]) + value[at + 1 :]
            for at in range(len(value))
        ]
        for changed in [*damaged, value[:-1], value + b"\0", b""]:
            kv.data[key] = changed
            with pytest.raises(SnapshotDamaged, match=expected_text):
                part_store(kv).execute_job(load_job(number))
        kv.data[key] = value
    assert load(part_store(kv), 4)[0] == b"meta 4"


def test_damaged_snapshot_leaves_the_previous_one_loadable() -> None:
    kv = MemoryKeyValue("memory")
    shown = fill(part_store(kv, 99), range(1, 4))
    for key in [key for key in kv.data if int.from_bytes(key[:8], "big") == 3]:
        kv.data[key] = b"damaged"
    with pytest.raises(SnapshotDamaged):
        part_store(kv).execute_job(LoadSnapshot(3))
    assert load(part_store(kv), 2) == (b"meta 2", shown[2])


@pytest.mark.parametrize("damage", [b"", b"damage", None])
@pytest.mark.parametrize("whole", [True, False])
def test_damaged_newest_snapshot_is_rejected(damage: bytes | None, whole: bool) -> None:
    """Parts are written atomically, so a damaged part existed before."""
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
            part_store(kv).execute_job(LoadSnapshot(0, allow_later=True))
    assert kv.data == before


def test_merging_does_not_hide_damage() -> None:
    kv = MemoryKeyValue("memory")
    store = part_store(kv, merge_at=2)
    fill(store, range(1, 3))
    key = next(key for key in kv.all_keys() if key != NEWEST)
    kv.data[key] = b"damaged"
    fill(store, range(3, 8))
    with pytest.raises(SnapshotDamaged):
        store.execute_job(LoadSnapshot(7))


# A store sends its parts to other nodes, and is emptied for parts of others


ALL = 0, FLOW.groups - 1


def transferred(store: PartStore, number: int, after: int, size: int = 7) -> list[bytes]:
    """Return the segments that another node reads, a few bytes at a time."""
    listed = store.execute_job(ListParts("node-9", number, 0, after, 0, ALL))
    assert isinstance(listed, tuple)
    segments = []
    for part, group, _ in listed:
        segment = b""
        while True:
            data = store.execute_job(ReadSlice("node-9", part, group, len(segment), size))
            assert isinstance(data, bytes)
            segment += data
            if len(data) < size:
                break
        segments.append(segment)
    return segments


@pytest.mark.parametrize("lmdb", [False, True])
def test_increment_turns_an_earlier_snapshot_into_the_later_one(lmdb: bool, tmp_path: Path) -> None:
    store = part_store(LmdbStore(tmp_path, "me") if lmdb else MemoryKeyValue("store"), 100)
    shown = fill(store, (1, 2, 3, 4, 5))
    found = tables()
    restore(found, transferred(store, 2, 0))
    assert held(found) == shown[2]
    restore(found, transferred(store, 5, 2))
    assert held(found) == shown[5]


def test_merged_snapshot_cannot_be_the_base_of_an_increment() -> None:
    store = part_store(MemoryKeyValue("store"), 100)
    fill(store, (1, 2, 3, 4))
    store._merge_at = 2
    store.execute_job(MergeParts(4, 3))
    with pytest.raises(SnapshotDamaged, match="snapshot 2 is not there"):
        store.execute_job(ListParts("node-9", 4, 0, 2, 0, ALL))
    transferred(store, 4, 3)


def test_snapshot_of_another_incarnation_is_not_transferred() -> None:
    store = part_store(MemoryKeyValue("store"))
    store.execute_job(StoreSnapshot(1, {}, b"", snapshot_incarnation=3))
    with pytest.raises(SnapshotDamaged):
        store.execute_job(ListParts("node-9", 1, 2, 0, 0, ALL))


def test_nodes_share_the_rows_of_a_segment() -> None:
    store = part_store(MemoryKeyValue("store"), 100)
    shown = fill(store, (1, 2, 3))
    owners, whole = Owners(3, FLOW.groups), tables()
    for place in range(3):
        mine = tables()
        chunks = [
            chunk
            for segment in transferred(store, 3, 0)
            for chunk in restore_owned_rows(mine, segment, owners, place)
        ]
        keys = [key for table in mine.values() for key in table]
        assert owners.owners_of(keys) == [place] * len(keys)
        restore(whole, [b"".join(chunks)])
    assert sorted(held(whole)) == sorted(shown[3])


def test_store_ignores_vacate_requests_of_an_earlier_master() -> None:
    kv = MemoryKeyValue("store")
    store = part_store(kv)
    fill(store, (1, 2))
    assert store.execute_job(Vacate(5)) is True
    assert store.newest() == 0
    shown = fill(store, (7,))
    again = part_store(kv)
    assert again.execute_job(Vacate(4)) is False, "these parts may belong to the run by now"
    assert load(again, 7)[1] == shown[7]
    assert again.execute_job(Vacate(5)) is True


# Parts are merged as they accumulate; every snapshot that may be needed stays loadable


@given(st.lists(st.integers(1, 3), min_size=1, max_size=12), st.integers(1, 5))
def test_last_two_committed_snapshots_are_loadable_after_any_merges(
    gaps: list[int], merge_at: int
) -> None:
    numbers = [sum(gaps[: i + 1]) for i in range(len(gaps))]
    kv = MemoryKeyValue("memory")
    store = part_store(kv, merge_at)
    shown = fill(store, numbers)
    for number in sorted(numbers[-2:], reverse=True):
        assert load(store, number) == (b"meta %d" % number, shown[number])
    parts = {key[:8] for key in kv.data if key != NEWEST}
    assert len(parts) <= merge_at + 2


@given(st.lists(steps, min_size=1, max_size=12), st.integers(1, 4))
def test_changes_and_removals_survive_the_merging_of_parts(
    intervals: list[list[Step]], merge_at: int
) -> None:
    store = part_store(MemoryKeyValue("memory"), merge_at)
    found = tables()
    shown: list[list[str]] = []
    for number, made in enumerate(intervals, 1):
        change(found, made)
        store.execute_job(StoreSnapshot(number, capture(found), b"meta"))
        store.execute_job(MergeParts(number, number - 1))
        shown.append(held(found))
    assert load(store, len(shown))[1] == shown[-1]
    if len(shown) > 1:
        assert load(store, len(shown) - 1)[1] == shown[-2]


def test_fallback_snapshot_is_kept_while_later_ones_are_abandoned() -> None:
    store = part_store(MemoryKeyValue("memory"), 2)
    shown = fill(store, range(1, 4), commit=False)
    for number in range(4, 9):  # 4 to 7 are prepared here, but abandoned by the master
        store.execute_job(StoreSnapshot(number, {}, b"meta %d" % number))
    store.execute_job(MergeParts(8, 3))
    assert load(store, 8) == (b"meta 8", shown[3])
    assert load(store, 3) == (b"meta 3", shown[3])


def test_parts_are_merged_in_steps_between_which_others_are_stored() -> None:
    kv = MemoryKeyValue("memory")
    store = PartStore(kv, FLOW, 4, 2)
    found = tables()
    steps_taken = 0
    for number in range(1, 60):
        change(found, [("put", "abcdef"[number % 6], number % 4), ("set", "a", number)])
        store.execute_job(StoreSnapshot(number, capture(found), b"meta %d" % number))
        steps_taken += bool(store.execute_job(MergeParts(number, number - 1, merge_all=False)))
    assert steps_taken > 10
    parts = {int.from_bytes(key[:8], "big") for key in kv.data if key != NEWEST}
    assert min(parts) > 1, "no parts were merged"
    assert load(store, LATEST) == (b"meta 59", held(found))


def test_loading_a_snapshot_cancels_an_unfinished_merge() -> None:
    kv = MemoryKeyValue("memory")
    store = PartStore(kv, FLOW, 4, 2)
    shown = fill(store, range(1, 10), commit=False)
    assert store.execute_job(MergeParts(9, 8, merge_all=False))
    assert load(store, 6) == (b"meta 6", shown[6])
    while store.execute_job(MergeParts(6, 5, merge_all=False)):
        pass
    assert load(store, 6) == (b"meta 6", shown[6])


# A store grows its address space when it is full


def test_full_lmdb_map_grows_without_losing_writes(tmp_path: Path) -> None:
    store = LmdbStore(tmp_path, "me", map_size=1 << 17)
    values = {bytes([number]): bytes([number]) * 100_000 for number in range(20)}
    for key, value in values.items():
        store.write({key: value}, iter(()))
    store.write({b"last": b"one"}, iter([b"\0", b"\1"]))
    assert store.all_keys() == sorted([*values, b"last"])[2:]
    assert all(store.read(key) == value for key, value in list(values.items())[2:])
    store.close()
    again = LmdbStore(tmp_path, "me", map_size=1 << 17)
    assert again.read(bytes([19])) == values[bytes([19])]
    again.close()
