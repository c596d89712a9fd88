"""A snapshot is loaded whole, as it was taken, or not at all."""

from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driftline.deploy.simulation.world.disks import MemoryKeyValue
from driftline.engine.errors import SnapshotDamaged, StateMismatch, Unavailable
from driftline.engine.flow.flow import Flow, Vertex
from driftline.engine.keygroups import group_of
from driftline.engine.snapshots.jobs import (
    Capture,
    CommitSnapshot,
    Loaded,
    LoadSnapshot,
    StoreSnapshot,
    by_group,
    merge,
    read_segment,
    restore,
)
from driftline.engine.snapshots.store import NEWEST, LmdbStore, PartStore
from driftline.engine.state.changelog import EARLY_FROM, MANY, Changelog
from driftline.engine.state.managed import ListState, MapState, StateTable, ValueState
from driftline.engine.wire.codec import encode_rows, pack
from driftline.engine.wire.party import Job

FLOW = Flow("snapshots", groups=4)
(
    FLOW.source("in")
    .key_by(0)
    .scan(
        lambda *_: None,
        ValueState[object]("value"),
        ListState[object]("list"),
        MapState[object, object]("map"),
        name="first",
    )
    .key_by(0)
    .scan(lambda *_: None, ValueState[object]("value"), name="second")
    .sink()
)
OPERATORS = [vertex for vertex in FLOW.vertices if vertex.keyed]

_MAP_ONLY = Flow("map only")
_MAP_ONLY.source("in").key_by(0).scan(
    lambda *_: None, MapState[object, object]("map"), name="third"
).sink()
MAPPED = next(vertex for vertex in _MAP_ONLY.vertices if vertex.keyed)


class Table(StateTable):
    """With what it has kept."""

    def __init__(self, vertex: Vertex) -> None:
        super().__init__(vertex.states, [])
        self.changelog = Changelog(vertex.name, vertex.states)

    def keep(self) -> None:
        """All changes are final."""
        self.changelog.keep(self.undo_log)
        self.undo_log.clear()


def tables() -> dict[str, Table]:
    return {vertex.name: Table(vertex) for vertex in OPERATORS}


def merged_into(segments: Iterable[bytes]) -> bytes:
    return b"".join(merge(FLOW, segments))


def held(found: Mapping[str, StateTable]) -> list[str]:
    """What tables hold, in a form that tells 1 from 1.0 and does not depend on history."""
    return sorted(
        repr((name, key, state.name, sorted(state.slots(), key=repr)))
        for name, table in found.items()
        for key in list(table)
        for state in table.states(key)
        if not state.is_empty()
    )


Step = tuple[str, str, int]
"""(what, key, number): one change"""

steps = st.lists(
    st.tuples(
        st.sampled_from(["set", "clear", "append", "pop", "put", "remove", "empty", "second"]),
        st.sampled_from("abcdef"),
        st.integers(0, 3),
    ),
    max_size=12,
)
"""The final changes between two snapshots."""


def change(found: dict[str, Table], made: list[Step]) -> None:
    for what, key, number in made:
        table = found["second" if what == "second" else "first"]
        value, many, mapped = (*table.states(key), None, None)[:3]
        assert isinstance(value, ValueState)
        if what == "second":
            value.set(number)
            table.keep()
            continue
        assert isinstance(many, ListState)
        assert isinstance(mapped, MapState)
        if what == "set":
            value.set((key, number, float(number)))
        elif what == "clear":
            value.clear()
        elif what == "append":
            many.append(number)
        elif what == "pop" and len(many):
            many.pop()
        elif what == "put":
            mapped[number] = key
        elif what == "remove" and number in mapped:
            del mapped[number]
        elif what == "empty":
            many.clear()
            mapped.clear()
        table.keep()


def capture(found: Mapping[str, Table]) -> dict[int, bytes]:
    capture = Capture()
    for table in found.values():
        capture.take(table.changelog)
    while capture.step():
        pass
    return capture.segments


def loaded(segments: Iterable[bytes]) -> list[str]:
    found = tables()
    restore(found, segments)
    return held(found)


# Segments -------------------------------------------------------------------------------------


@given(st.lists(steps, max_size=5))
@settings(max_examples=150)
def test_the_segments_of_all_snapshots_give_the_state_and_so_does_what_they_are_merged_into(
    intervals: list[list[Step]],
) -> None:
    found = tables()
    segments: list[bytes] = []
    by_group: dict[int, list[bytes]] = {}
    joined: dict[int, bytes] = {}
    for made in intervals:
        change(found, made)
        for group, segment in capture(found).items():
            segments.append(segment)
            by_group.setdefault(group, []).append(segment)
            joined[group] = joined.get(group, b"") + segment
        assert loaded(segments) == held(found)
    assert loaded(joined.values()) == held(found)
    merged = [merged_into(segments) for segments in by_group.values()]
    assert loaded(merged) == held(found)
    assert loaded([merged_into(segments)]) == held(found)


@given(st.lists(steps, max_size=3), st.integers(1, 20))
def test_a_mixed_segment_is_parted_by_key_group_and_nothing_is_lost(
    intervals: list[list[Step]], rows_at_once: int
) -> None:
    found = tables()
    parts: dict[int, list[bytes]] = {}
    for made in intervals:
        change(found, made)
        for segment in capture(found).values():
            for group, chunk in by_group(FLOW.groups, segment, rows_at_once):
                parts.setdefault(group, []).append(chunk)
    for group, chunks in parts.items():
        for _, _, rows in read_segment(b"".join(chunks)):
            assert {group_of(row[0], FLOW.groups) for row in rows} == {group}
    assert loaded(map(b"".join, parts.values())) == held(found)


def test_the_changes_of_a_large_block_are_kept_as_bytes_behind_what_came_before() -> None:
    found = {"second": Table(OPERATORS[1]), "third": Table(MAPPED)}
    small, large = found["second"], found["third"]
    for number in range(3):
        for table in (small, large):
            for key in range(MANY if number == 1 else 2):
                [state] = table.states(key)
                if isinstance(state, MapState):
                    state["slot"] = (number, key)
                elif isinstance(state, ValueState):
                    state.set((number, key))
            table.keep()
    again = {name: Table(vertex) for name, vertex in (("second", OPERATORS[1]), ("third", MAPPED))}
    restore(again, capture(found).values())
    assert held(again) == held(found)


def test_the_rows_of_small_blocks_are_encoded_early_a_few_at_a_time() -> None:
    table = Table(MAPPED)
    [state] = table.states("key")
    assert isinstance(state, MapState)
    for number in range(EARLY_FROM):
        state[number % 100] = number
        table.keep()
    assert table.changelog.encode_early(1000)
    assert not table.changelog.encode_early(1000), "few are left"
    state[7] = "last"
    table.keep()
    again = {"third": Table(MAPPED)}
    restore(again, capture({"third": table}).values())
    assert held(again) == held({"third": table})


def test_a_snapshot_holds_only_what_has_changed_since_the_one_before() -> None:
    found = tables()
    change(found, [("put", key, number) for key in "abcdef" for number in range(4)])
    whole = sum(map(len, capture(found).values()))
    change(found, [("put", "a", 1)])
    assert sum(map(len, capture(found).values())) < whole / 4
    assert capture(found) == {}


def test_what_changes_while_a_snapshot_is_written_goes_into_the_next() -> None:
    found = tables()
    change(found, [("append", "a", 1), ("set", "b", 1)])
    before = held(found)
    under_way = Capture()
    for table in found.values():
        under_way.take(table.changelog)
    while under_way.step():
        change(found, [("append", "a", 2), ("set", "b", 2), ("set", "c", 2)])
    segments = list(under_way.segments.values())
    assert loaded(segments) == before
    assert loaded([*segments, *capture(found).values()]) == held(found)


def test_a_value_that_is_overwritten_many_times_is_written_once() -> None:
    found = tables()
    change(found, [("set", "a", number) for number in range(1000)])
    assert sum(map(len, capture(found).values())) < 100


def test_merging_gives_back_what_was_overwritten() -> None:
    found = tables()
    segments: list[bytes] = []
    for number in range(100):
        change(found, [("put", "a", number % 2), ("append", "a", number), ("empty", "a", 0)])
        segments += capture(found).values()
    change(found, [("put", "a", 1)])
    segments += capture(found).values()
    assert len(merged_into(segments)) < 100


def test_a_key_that_was_emptied_does_not_come_back() -> None:
    found = tables()
    change(found, [("set", "a", 1), ("set", "b", 1)])
    segments = list(capture(found).values())
    change(found, [("clear", "a", 1)])
    segments += capture(found).values()
    again = tables()
    restore(again, segments)
    assert list(again["first"]) == ["b"]
    assert loaded([merged_into(segments)]) == held(again)


def test_state_that_the_flow_does_not_have_is_damage_and_not_dropped() -> None:
    segment = pack(("first", "unknown", encode_rows([("a", None, 1)])))
    with pytest.raises(SnapshotDamaged, match="'unknown' of operator 'first'"):
        loaded([segment])


@pytest.mark.parametrize(
    "segment",
    [
        b"\xc1",
        pack(7),
        pack(("first", "value")),
        pack(("first", "value", (2, -1, ()))),
        pack(("first", "value", (1, -1, ()), 7)),
        pack((("first",), ["value"], (0, -1, ()))),
        pack((7,)),
        pack(("first", "value", 7)),
    ],
    ids=range(8),
)
def test_a_segment_that_cannot_be_read_is_damaged(segment: bytes) -> None:
    with pytest.raises(SnapshotDamaged):
        loaded([segment])


# The store ------------------------------------------------------------------------------------


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


def test_a_snapshot_that_is_not_there_is_not_taken_for_an_older_one() -> None:
    kv = MemoryKeyValue("memory")
    fill(part_store(kv), range(1, 3))
    with pytest.raises(SnapshotDamaged, match="snapshot 5 is not there"):
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


class Unsteady(MemoryKeyValue):
    """Cannot be read now and then."""

    failing = False

    def read(self, key: bytes) -> bytes | None:
        if self.failing:
            raise Unavailable("the disk does not answer")
        return super().read(key)


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


def test_the_snapshot_to_fall_back_to_outlives_those_that_were_given_up_after_it() -> None:
    store = part_store(MemoryKeyValue("memory"), 2)
    shown = fill(store, range(1, 4), commit=False)
    for number in range(4, 9):  # 4 to 7 are prepared here, and given up elsewhere
        store.carry_out(StoreSnapshot(number, {}, b"meta %d" % number))
    store.carry_out(CommitSnapshot(8, 3))
    assert load(store, 8) == (b"meta 8", shown[3])
    assert load(store, 3) == (b"meta 3", shown[3])


def test_damage_before_the_latest_snapshot_is_damage() -> None:
    kv = MemoryKeyValue("memory")
    fill(part_store(kv), range(1, 4), commit=False)
    for key in [key for key in kv.data if int.from_bytes(key[:8], "big") == 2]:
        kv.data[key] = b"damaged"
    with pytest.raises(SnapshotDamaged):
        part_store(kv).carry_out(LoadSnapshot(0, or_later=True))


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


def test_a_damaged_store_is_not_made_worse_by_merging() -> None:
    kv = MemoryKeyValue("memory")
    store = part_store(kv, merge_at=2)
    fill(store, range(1, 3))
    key = next(key for key in kv.all_keys() if key != NEWEST)
    kv.data[key] = b"damaged"
    fill(store, range(3, 8))
    with pytest.raises(SnapshotDamaged):
        store.carry_out(LoadSnapshot(7))


def test_only_snapshot_jobs_are_carried_out() -> None:
    with pytest.raises(TypeError, match="not a job for a snapshot store"):
        part_store(MemoryKeyValue("memory")).carry_out(Job())
