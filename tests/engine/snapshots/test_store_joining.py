"""Parts of a store are joined as they pile up, and every snapshot that may be needed stays."""

from collections.abc import Iterable, Mapping

from hypothesis import given
from hypothesis import strategies as st

from driftline.engine.snapshots.jobs import CommitSnapshot, StoreSnapshot
from driftline.engine.snapshots.store import NEWEST, PartStore
from driftline.engine.state.managed import MapState
from driftline.simulation.world.disks import MemoryKeyValue
from tests.engine.snapshots.stores import LATEST, fill, load, part_store
from tests.engine.snapshots.tables import FLOW, Step, capture, change, held, steps, tables


@given(st.lists(st.integers(1, 3), min_size=1, max_size=12), st.integers(1, 5))
def test_the_last_two_committed_snapshots_are_loadable_however_often_parts_were_merged(
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
def test_whatever_was_changed_or_removed_is_so_after_parts_were_joined(
    intervals: list[list[Step]], merge_at: int
) -> None:
    store = part_store(MemoryKeyValue("memory"), merge_at)
    found = tables()
    shown: list[list[str]] = []
    for number, made in enumerate(intervals, 1):
        change(found, made)
        store.carry_out(StoreSnapshot(number, capture(found), b"meta"))
        store.carry_out(CommitSnapshot(number, number - 1))
        shown.append(held(found))
    assert load(store, len(shown))[1] == shown[-1]
    if len(shown) > 1:
        assert load(store, len(shown) - 1)[1] == shown[-2]


def test_joining_copies_a_row_a_few_times_and_not_again_with_every_part() -> None:
    kv = MemoryKeyValue("memory")
    store = part_store(kv, merge_at=4)
    written = 0

    def write(puts: Mapping[bytes, bytes], deletes: Iterable[bytes]) -> None:
        nonlocal written
        written += sum(map(len, puts.values()))
        MemoryKeyValue.write(kv, puts, deletes)

    kv.write = write  # type: ignore[method-assign]
    found = tables()
    stored = 0
    for number in range(1, 400):
        table = found["first"]
        value = table.states("abcdef"[number % 6])[2]
        assert isinstance(value, MapState)
        value[number] = "x" * 50
        table.keep()
        segments = capture(found)
        stored += sum(map(len, segments.values()))
        store.carry_out(StoreSnapshot(number, segments, b""))
        store.carry_out(CommitSnapshot(number, number - 1))
    assert written < 20 * stored


def test_the_snapshot_to_fall_back_to_outlives_those_that_were_given_up_after_it() -> None:
    store = part_store(MemoryKeyValue("memory"), 2)
    shown = fill(store, range(1, 4), commit=False)
    for number in range(4, 9):  # 4 to 7 are prepared here, and given up elsewhere
        store.carry_out(StoreSnapshot(number, {}, b"meta %d" % number))
    store.carry_out(CommitSnapshot(8, 3))
    assert load(store, 8) == (b"meta 8", shown[3])
    assert load(store, 3) == (b"meta 3", shown[3])


def test_parts_are_joined_in_steps_and_others_stored_in_between() -> None:
    kv = MemoryKeyValue("memory")
    store = PartStore(kv, FLOW, 4, 2)
    found = tables()
    steps_taken = 0
    for number in range(1, 60):
        change(found, [("put", "abcdef"[number % 6], number % 4), ("set", "a", number)])
        store.carry_out(StoreSnapshot(number, capture(found), b"meta %d" % number))
        steps_taken += bool(store.carry_out(CommitSnapshot(number, number - 1, whole=False)))
    assert steps_taken > 10
    parts = {int.from_bytes(key[:8], "big") for key in kv.data if key != NEWEST}
    assert min(parts) > 1, "nothing was joined"
    assert load(store, LATEST) == (b"meta 59", held(found))


def test_a_snapshot_that_is_loaded_ends_what_was_being_joined() -> None:
    kv = MemoryKeyValue("memory")
    store = PartStore(kv, FLOW, 4, 2)
    shown = fill(store, range(1, 10), commit=False)
    assert store.carry_out(CommitSnapshot(9, 8, whole=False))
    assert load(store, 6) == (b"meta 6", shown[6])
    while store.carry_out(CommitSnapshot(6, 5, whole=False)):
        pass
    assert load(store, 6) == (b"meta 6", shown[6])
