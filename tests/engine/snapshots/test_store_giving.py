"""A store gives its parts to other nodes, and is emptied for parts of others."""

from __future__ import annotations

from pathlib import Path

import pytest

from driftline.engine.errors import SnapshotDamaged
from driftline.engine.keygroups import Owners
from driftline.engine.snapshots.jobs import (
    MIXED,
    CommitSnapshot,
    ListParts,
    ReadSlice,
    StoreSnapshot,
    Vacate,
)
from driftline.engine.snapshots.merging import restore, restoring_some
from driftline.engine.snapshots.store import LmdbStore, PartStore
from driftline.simulation.world.disks import MemoryKeyValue
from tests.engine.snapshots.stores import fill, load, part_store
from tests.engine.snapshots.tables import FLOW, held, tables

ALL = 0, FLOW.groups - 1


def given(store: PartStore, number: int, after: int, size: int = 7) -> list[bytes]:
    """The segments that another node gets, a few bytes at a time."""
    listed = store.carry_out(ListParts("node-9", number, 0, after, 0, ALL))
    assert isinstance(listed, tuple)
    segments = []
    for part, group, _ in listed:
        segment = b""
        while True:
            data = store.carry_out(ReadSlice("node-9", part, group, len(segment), size))
            assert isinstance(data, bytes)
            segment += data
            if len(data) < size:
                break
        segments.append(segment)
    return segments


@pytest.mark.parametrize("lmdb", [False, True])
def test_what_a_later_snapshot_adds_makes_it_of_the_earlier_one(lmdb: bool, tmp_path: Path) -> None:
    store = part_store(LmdbStore(tmp_path, "me") if lmdb else MemoryKeyValue("store"), 100)
    shown = fill(store, (1, 2, 3, 4, 5))
    found = tables()
    restore(found, given(store, 2, 0))
    assert held(found) == shown[2]
    restore(found, given(store, 5, 2))
    assert held(found) == shown[5]


def test_a_snapshot_that_was_joined_is_no_beginning_for_what_a_later_one_adds() -> None:
    store = part_store(MemoryKeyValue("store"), 100)
    fill(store, (1, 2, 3, 4))
    store._merge_at = 2
    store.carry_out(CommitSnapshot(4, 3))
    with pytest.raises(SnapshotDamaged, match="snapshot 2 is not there"):
        store.carry_out(ListParts("node-9", 4, 0, 2, 0, ALL))
    given(store, 4, 3)


def test_a_snapshot_of_another_incarnation_is_not_given() -> None:
    store = part_store(MemoryKeyValue("store"))
    store.carry_out(StoreSnapshot(1, {}, b"", taken=3))
    with pytest.raises(SnapshotDamaged):
        store.carry_out(ListParts("node-9", 1, 2, 0, 0, ALL))


def test_nodes_share_the_rows_of_a_segment() -> None:
    store = part_store(MemoryKeyValue("store"), 100)
    shown = fill(store, (1, 2, 3))
    owners, whole = Owners(3, FLOW.groups), tables()
    for place in range(3):
        mine = tables()
        chunks = [
            chunk
            for segment in given(store, 3, 0)
            for chunk in restoring_some(mine, segment, owners, place)
        ]
        keys = [key for table in mine.values() for key in table]
        assert owners.of(keys) == [place] * len(keys)
        restore(whole, [b"".join(chunks)])
    assert sorted(held(whole)) == sorted(shown[3])


def test_a_store_is_emptied_for_no_earlier_master() -> None:
    kv = MemoryKeyValue("store")
    store = part_store(kv)
    fill(store, (1, 2))
    assert store.carry_out(Vacate(5)) is True
    assert store.newest() == 0
    shown = fill(store, (7,))
    again = part_store(kv)
    assert again.carry_out(Vacate(4)) is False, "these parts may be those of the run by now"
    assert load(again, 7)[1] == shown[7]
    assert again.carry_out(Vacate(5)) is True


def test_a_part_whose_writing_failed_is_written_again() -> None:
    """As when it was written, and reported as failed."""
    store = part_store(MemoryKeyValue("store"), 100)
    shown = fill(store, (1, 2))
    [segment] = given(store, 2, 1)
    store.carry_out(StoreSnapshot(2, {MIXED: segment}, b"meta 2"))
    assert load(store, 2) == (b"meta 2", shown[2])
