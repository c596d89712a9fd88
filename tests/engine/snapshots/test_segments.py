"""Segments: each has the changes since the previous snapshot; together they restore the state."""

from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driftline.engine.errors import SnapshotDamaged
from driftline.engine.flow.flow import Flow
from driftline.engine.keygroups import group_of
from driftline.engine.snapshots.merging import by_group, merge, read_segment, restore
from driftline.engine.state.changelog import EARLY_ROWS_MIN
from driftline.engine.state.managed import MapState
from driftline.engine.wire.codec import encode_rows, pack
from tests.engine.snapshots.tables import (
    FLOW,
    Step,
    Table,
    capture,
    change,
    held,
    loaded,
    steps,
    tables,
)

_MAP_ONLY = Flow("map only")
_MAP_ONLY.source("in").key_by(0).scan(
    lambda *_: None, MapState[object, object]("map"), name="third"
).sink()
MAPPED = next(vertex for vertex in _MAP_ONLY.vertices if vertex.is_keyed)


def merged_into(segments: Iterable[bytes]) -> bytes:
    return b"".join(merge(FLOW, segments))


@given(st.lists(steps, max_size=5))
@settings(max_examples=150)
def test_original_and_merged_segments_restore_the_same_state(
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
def test_mixed_segment_is_split_by_key_group_without_loss(
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


def test_rows_of_small_blocks_are_encoded_early_in_small_steps() -> None:
    table = Table(MAPPED)
    [state] = table.states("key")
    assert isinstance(state, MapState)
    for number in range(EARLY_ROWS_MIN):
        state[number % 100] = number
        table.keep()
    assert table.changelog.encode_early(1000)
    assert not table.changelog.encode_early(1000), "few rows are left to encode"
    state[7] = "last"
    table.keep()
    again = {"third": Table(MAPPED)}
    restore(again, capture({"third": table}).values())
    assert held(again) == held({"third": table})


def test_snapshot_contains_only_changes_since_the_previous_one() -> None:
    found = tables()
    change(found, [("put", key, number) for key in "abcdef" for number in range(4)])
    whole = sum(map(len, capture(found).values()))
    change(found, [("put", "a", 1)])
    assert sum(map(len, capture(found).values())) < whole / 4
    assert capture(found) == {}


def test_unknown_state_in_a_segment_is_reported_as_damage() -> None:
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
def test_unreadable_segment_is_reported_as_damage(segment: bytes) -> None:
    with pytest.raises(SnapshotDamaged):
        loaded([segment])
