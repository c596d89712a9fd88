"""A snapshot is loaded whole, as it was taken, or not at all."""

from pathlib import Path

import pytest

from driftline.engine.errors import SnapshotDamaged, StateMismatch, Unavailable
from driftline.engine.snapshots.jobs import CommitSnapshot, Loaded, LoadSnapshot, StoreSnapshot
from driftline.engine.snapshots.store import LmdbStore
from driftline.engine.wire.party import Job
from driftline.simulation.world.disks import MemoryKeyValue
from tests.engine.snapshots.stores import LATEST, Unsteady, fill, load, load_job, part_store
from tests.engine.snapshots.tables import capture, change, tables


def test_what_was_stored_is_there_after_the_directory_was_closed(tmp_path: Path) -> None:
    store = LmdbStore(tmp_path / "state", "me")
    shown = fill(part_store(store), range(1, 8))
    store.close()
    store = LmdbStore(tmp_path / "state", "me")
    for number in (7, 6):
        assert load(part_store(store), number) == (b"meta %d" % number, shown[number])
    store.close()


def test_the_directory_of_another_flow_is_refused_and_not_touched(tmp_path: Path) -> None:
    store = LmdbStore(tmp_path, "me")
    shown = fill(part_store(store), [1])
    store.close()
    with pytest.raises(StateMismatch, match="--state"):
        LmdbStore(tmp_path, "somebody else")
    store = LmdbStore(tmp_path, "me")
    assert load(part_store(store), 1)[1] == shown[1]
    store.close()


def test_a_directory_that_cannot_be_opened_is_told_as_such(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file")
    with pytest.raises(Unavailable, match="state directory"):
        LmdbStore(tmp_path / "state", "me")


def test_a_snapshot_that_is_not_there_is_not_taken_for_an_older_one() -> None:
    kv = MemoryKeyValue("memory")
    fill(part_store(kv), range(1, 3))
    with pytest.raises(SnapshotDamaged, match="snapshot 5 is missing"):
        part_store(kv).carry_out(LoadSnapshot(5))


def test_going_back_one_snapshot_forgets_the_newer_one() -> None:
    """A node that is ahead of another which failed goes back, and counts on from there."""
    kv = MemoryKeyValue("memory")
    store = part_store(kv)
    shown = fill(store, range(1, 4))
    fill(store, [4], commit=False)
    assert load(store, 3) == (b"meta 3", shown[3])
    with pytest.raises(SnapshotDamaged):
        store.carry_out(LoadSnapshot(4))
    found = tables()
    change(found, [("second", "a", 1)])
    store.carry_out(StoreSnapshot(4, capture(found), b"again"))
    meta, state = load(store, 4)
    assert meta == b"again"
    assert len(state) == len(shown[3]) + 1


def test_the_latest_snapshot_is_the_newest_one_whichever_it_is() -> None:
    kv = MemoryKeyValue("memory")
    assert load(part_store(kv), LATEST) == (b"", [])
    shown = fill(part_store(kv), range(1, 8))
    assert load(part_store(kv), LATEST) == (b"meta 7", shown[7])


@pytest.mark.parametrize("number", [LATEST, 3])
def test_what_cannot_be_read_at_the_moment_is_neither_damaged_nor_lost(number: int) -> None:
    kv = Unsteady("memory")
    store = part_store(kv, 2)
    shown = fill(store, range(1, 4), commit=False)
    kv.failing = True
    with pytest.raises(Unavailable):
        store.carry_out(load_job(number))
    with pytest.raises(Unavailable):
        store.carry_out(CommitSnapshot(3, 2))
    kv.failing = False
    assert load(store, number) == (b"meta 3", shown[3])
    store.carry_out(CommitSnapshot(3, 2))
    assert load(store, number) == (b"meta 3", shown[3])


def test_an_old_copy_is_not_taken_for_what_has_been_stored_since() -> None:
    """Numbers of snapshots that were given up are given again."""
    kv = MemoryKeyValue("memory")
    store = part_store(kv)
    store.carry_out(StoreSnapshot(1, {}, b"", taken=1))
    store.carry_out(StoreSnapshot(2, {}, b"given up", taken=1))
    copy = dict(kv.data)
    store.carry_out(LoadSnapshot(1, taken=1))
    store.carry_out(StoreSnapshot(2, {}, b"committed", taken=2))
    loaded = store.carry_out(LoadSnapshot(2, taken=2))
    assert isinstance(loaded, Loaded)
    assert loaded.meta == b"committed"
    kv.data = copy
    with pytest.raises(SnapshotDamaged, match="memory is an old copy"):
        part_store(kv).carry_out(LoadSnapshot(2, taken=2))
    with pytest.raises(SnapshotDamaged, match="memory is an old copy: its newest part is 2"):
        part_store(kv).carry_out(LoadSnapshot(3, or_later=True))


def test_the_empty_snapshot_forgets_everything() -> None:
    kv = MemoryKeyValue("memory")
    store = part_store(kv)
    fill(store, range(1, 4))
    assert load(store, 0) == (b"", [])
    assert kv.data == {}


def test_a_snapshot_without_changes_is_a_snapshot() -> None:
    store = part_store(MemoryKeyValue("memory"))
    shown = fill(store, [1])
    store.carry_out(StoreSnapshot(2, {}, b"meta 2"))
    assert load(store, 2) == (b"meta 2", shown[1])


def test_only_snapshot_jobs_are_carried_out() -> None:
    with pytest.raises(TypeError, match="not a job for a snapshot store"):
        part_store(MemoryKeyValue("memory")).carry_out(Job())
