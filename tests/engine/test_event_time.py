"""Event times: what a value means, the order of labels, and watermarks by their definition."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, timezone
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgpack import ExtType

from driftline.engine.errors import FlowError, MalformedMessage
from driftline.engine.event_time import (
    END,
    ENDED,
    IDLE,
    IDLE_MARK,
    LIMIT,
    NEVER,
    RESUMED,
    RESUMED_MARK,
    TIMER_LIMIT,
    Clock,
    Duration,
    Watermark,
    event_time_of,
    event_time_of_mark,
    is_packed_mark,
    iso_text,
    output_label,
    parse_duration,
    rank_of,
    time_mark,
    timer_label,
    timestamped,
    to_microseconds,
)
from driftline.engine.labels import Label, child
from driftline.engine.operators.iterate import next_round
from driftline.engine.wire.codec import pack, unpack

S = 1_000_000
DAY = 86_400 * S

# Values. -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "unit", "microseconds"),
    [
        (0, "s", 0),
        (7, "s", 7 * S),
        (7, "ms", 7000),
        (7, "us", 7),
        (-7, "ms", -7000),
        (1.5, "s", 1_500_000),
        (-0.25, "ms", -250),
        (0.4, "us", 0),
        (1e9 + 0.25, "s", 10**15 + 250_000),
        (LIMIT - 1, "us", LIMIT - 1),
        (1 - LIMIT, "us", 1 - LIMIT),
        ("1970-01-01", "s", 0),
        ("1970-01-01T00:00:01", "s", S),
        ("1970-01-01T00:00:01Z", "s", S),
        ("1970-01-01T01:00:00+01:00", "s", 0),
        ("1970-01-01T00:00:00.000001", "us", 1),
        ("1969-12-31T23:59:59.999999", "s", -1),
        ("1969-07-20 20:17:40", "s", -14_182_940 * S),
        ("2024-02-29T00:00:00Z", "s", 1_709_164_800 * S),
        ("2024-03-01T00:00:00Z", "s", 1_709_164_800 * S + DAY),
        (datetime(2024, 2, 29), "s", 1_709_164_800 * S),
        (datetime(2024, 2, 29, tzinfo=UTC), "ms", 1_709_164_800 * S),
        (datetime(1970, 1, 1, 2, tzinfo=timezone(timedelta(hours=2))), "s", 0),
        (datetime(1969, 12, 31, 23, 59, 59, 999_999), "s", -1),
    ],
)
def test_event_time_is_in_microseconds_since_1970(
    value: object, unit: str, microseconds: int
) -> None:
    assert to_microseconds(value, unit) == microseconds


@pytest.mark.parametrize(
    "value",
    [
        *(float("nan"), float("inf"), float("-inf"), True, False, None, b"1970-01-01", [1], {}),
        *("", "yesterday", "2023-02-29", "12:00", "1700000000", "1970-01-01T25:00:00"),
        *(datetime(2024, 1, 1).date(), timedelta(1), 1e300, 10**400, LIMIT, -LIMIT),
        *(datetime.max, datetime.min, "9999-12-31", "0001-01-01"),
    ],
    ids=lambda value: f"{value!r:.30}",
)
def test_no_event_time_raises_value_error(value: object) -> None:
    with pytest.raises(ValueError, match=r".") as error:
        to_microseconds(value, "us")
    assert len(str(error.value)) < 250


@given(st.datetimes(datetime(830, 1, 1), datetime(3110, 1, 1)))
def test_text_of_an_event_time_is_the_same_event_time(moment: datetime) -> None:
    microseconds = to_microseconds(moment)
    text = iso_text(microseconds)
    assert text.endswith("Z")
    assert to_microseconds(text) == microseconds
    assert datetime.fromisoformat(text) == moment.replace(tzinfo=UTC)


def test_hint_at_the_unit_is_in_the_error_of_a_large_number() -> None:
    with pytest.raises(ValueError, match="is the unit s") as error:
        to_microseconds(1_700_000_000_000)
    assert "1700000000000" in str(error.value)


@pytest.mark.parametrize(
    ("duration", "microseconds"),
    [
        ("0s", 0),
        ("5s", 5 * S),
        ("500ms", 500_000),
        ("3us", 3),
        ("15m", 900 * S),
        ("15min", 900 * S),
        ("1h", 3600 * S),
        ("7d", 7 * DAY),
        ("1.5m", 90 * S),
        (" 2 s ", 2 * S),
        (5, 5 * S),
        (0.25, 250_000),
        (timedelta(days=1, microseconds=1), DAY + 1),
    ],
)
def test_duration_is_in_microseconds(duration: Duration, microseconds: int) -> None:
    assert parse_duration(duration, "size") == microseconds


@pytest.mark.parametrize(
    "duration",
    [
        *("", "5", "s", "5 parsecs", "5S", "1h30m", "-1s", "1e3s", "5.s", "nan s"),
        *(-1, -0.001, timedelta(-1), True, None, [], b"5s"),
        *(float("nan"), float("inf"), 1e300, 10**400, timedelta.max, "99999999d"),
        "9" * 400 + "s",
    ],
    ids=lambda value: f"{value!r:.20}",
)
def test_invalid_duration_is_named_in_the_error(duration: Any) -> None:
    with pytest.raises(FlowError, match=r"^size of a window cannot be .*'500ms', '5s', '15m'"):
        parse_duration(duration, "size of a window")


# Labels. -----------------------------------------------------------------------------------------

ROOTS = st.tuples(st.integers(0, 50), st.integers(0, 3))
TIMES = st.integers(1 - LIMIT, LIMIT - 1) | st.integers(-5, 5)
PATHS = st.lists(st.integers(0, 2**31), max_size=4)
TIMER_TIMES = st.integers(-TIMER_LIMIT, TIMER_LIMIT - 1) | st.integers(-5, 5)


def descendant(label: Label, path: Sequence[int]) -> Label:
    for number in path:
        label = child(label, number)
    return label


@given(ROOTS, TIMES, PATHS)
def test_descendants_have_the_event_time_of_their_record(
    root: Label, event_time: int, path: list[int]
) -> None:
    label = descendant(timestamped(root, event_time), path)
    assert label[:2] == root
    assert all(0 <= number < 2**63 for number in label)
    assert event_time_of(label) == event_time


@given(ROOTS, st.integers(0, 1000), TIMER_TIMES, st.binary(), st.integers(0, 9), PATHS)
def test_outputs_of_a_timer_have_its_time(
    root: Label, operator: int, at: int, key: bytes, number: int, path: list[int]
) -> None:
    label = descendant(timer_label(root, operator, at, rank_of(key), number), path)
    assert label[:2] == root
    assert all(0 <= number < 2**63 for number in label)
    assert event_time_of(label) == at


@given(ROOTS, TIMES, TIMER_TIMES, PATHS, PATHS, st.booleans())
def test_output_may_have_an_event_time_of_its_own(
    root: Label, record: int, own: int, path: list[int], after: list[int], is_message: bool
) -> None:
    label = output_label(descendant(timestamped(root, record), path), own, 3)
    if is_message:
        label = next_round(label, 7)
    label = descendant(label, after)
    assert all(0 <= number < 2**63 for number in label)
    assert event_time_of(label) == own
    assert event_time_of(output_label(label, own + 1, 0)) == own + 1


Firing = tuple[int, int, int, int]
FIRINGS = st.tuples(
    st.integers(0, 1000),
    TIMER_TIMES,
    st.binary(max_size=3).map(rank_of),
    st.integers(0, 3),
)


@given(ROOTS, TIMES, PATHS, st.lists(FIRINGS, min_size=2, max_size=6, unique=True), PATHS)
def test_timers_fire_between_their_root_and_the_next(
    root: Label, event_time: int, path: list[int], firings: list[Firing], after: list[int]
) -> None:
    """In the order of operators, times, keys and numbers."""
    element = descendant(timestamped(root, event_time), path)
    labels = [timer_label(root, *firing) for firing in sorted(firings)]
    for one, other in pairwise([element, *labels, (root[0], root[1] + 1)]):
        assert one < other
        assert descendant(one, after) < other or one == element


# Watermarks. -------------------------------------------------------------------------------------

FRONTS = 3
LAST = 25

Recorded = tuple[int, int, int]
"""(front, time, event time)."""


@st.composite
def records(draw: st.DrawFn) -> list[Recorded]:
    """At most one record of each front and time; fronts become idle and resume, some end."""
    found = []
    for front in range(FRONTS):
        is_idle = False
        times = sorted(draw(st.sets(st.integers(1, LAST - 2), max_size=12)))
        for time in times:
            event_time = draw(st.one_of(st.integers(-20, 20), st.just(IDLE)))
            found.append((front, time, RESUMED if is_idle else event_time))
            is_idle = found[-1][2] == IDLE
        if draw(st.booleans()):
            found.append((front, max(times, default=0) + 1, ENDED))
    return found


GROUPS = {0: 0}, {2: 3}, {0: 0, 1: 0}, {0: 5, 1: 0, 2: 2}
"""Per operator: the fronts that reach it, each with the delay of the operators between."""

DELAYS = 0, 4, 11


def defined(recorded: Sequence[Recorded], label: Label) -> list[int]:
    """Return the watermarks of `GROUPS` before a label, by their definition."""
    reached = [NEVER] * len(GROUPS)
    sources = dict.fromkeys(range(FRONTS), NEVER)
    active, ended = set(sources), set()
    for front, time, event_time in sorted(recorded, key=lambda each: (each[1], each[0])):
        if (time, front) >= label:
            break
        if event_time in (IDLE, ENDED):
            active.discard(front)
            ended |= {front} if event_time == ENDED else set()
        elif event_time == RESUMED:
            active.add(front)
            for at, group in zip(reached, GROUPS, strict=True):
                if front in group and NEVER < at < ENDED:
                    sources[front] = max(sources[front], at + group[front])
        else:
            sources[front] = max(sources[front], event_time - DELAYS[front])
        for number, group in enumerate(GROUPS):
            behind = {i: max(sources[i] - delay, NEVER) for i, delay in group.items()}
            now = [behind[each] for each in group if each in active]
            if ended.issuperset(group):
                reached[number] = ENDED
            else:
                value = min(now) if now else max(behind.values())
                reached[number] = max(reached[number], value)
    return reached


ALL_ROOTS = [(time, front) for time in range(LAST + 1) for front in range(FRONTS)]


@given(data=st.data(), recorded=records())
def test_watermark_follows_its_definition(data: st.DataObject, recorded: list[Recorded]) -> None:
    """Whatever nodes record, in any order, and after clocks have forgotten or were restored."""
    draw = data.draw
    clock = Clock(DELAYS)
    watermarks = [Watermark(clock, group) for group in GROUPS]
    forgotten = 0
    cuts = [*sorted(draw(st.lists(st.integers(1, LAST), max_size=3))), LAST + 1]
    left = draw(st.permutations(recorded))
    for until in cuts:
        # Some records of later times arrive early; some of a restart arrive again.
        early = draw(st.integers(0, 5))
        now = [r for r in left if r[1] < until] + [r for r in left if r[1] >= until][:early]
        clock.record_all(draw(st.permutations(now)))
        left = [r for r in left if r not in now]
        clock.complete(until)
        clock.record_all([r for r in recorded if r[1] < until][:early])
        clock.complete(until - 1)
        assert clock.completed == until

        known = [root for root in ALL_ROOTS if forgotten <= root[0] < until]
        all_before = [defined(recorded, root) for root in known]
        all_at = [defined(recorded, (root[0], root[1] + 1)) for root in known]
        some = sorted(draw(st.lists(st.sampled_from(known), max_size=9))) if known else []
        for number, watermark in enumerate(watermarks):
            before = [each[number] for each in all_before]
            at = [each[number] for each in all_at]
            assert [watermark.before(root) for root in known] == before
            assert [watermark.at(root) for root in known] == at
            both = dict(zip(known, zip(before, at, strict=True), strict=True))
            assert watermark.along([(*root, 7, 1) for root in some]) == [both[r] for r in some]
            for value in range(-35, 25):
                if watermark.before((forgotten, -1)) < value <= watermark.before((until, -1)):
                    first = watermark.first_root(value)
                    assert watermark.before(first) < value <= watermark.at(first)

        cut = draw(st.integers(forgotten, until))
        state = clock.as_of(cut)
        if draw(st.booleans()):
            clock.forget(cut)
            forgotten = cut
        if draw(st.booleans()):  # a node recovers, and its replay begins at the cut
            forgotten = cut
            clock = Clock(DELAYS)
            if draw(st.booleans()):
                clock.restore(state, cut)
                watermarks = [Watermark(clock, group) for group in GROUPS]
            else:
                watermarks = [Watermark(clock, group) for group in GROUPS]
                clock.restore(state, cut)
            assert [w.before((cut, -1)) for w in watermarks] == defined(recorded, (cut, -1))
            left = draw(st.permutations([r for r in recorded if r[1] >= cut]))


def test_marks_travel_and_keep_their_event_time() -> None:
    times = 0, 1, -1, LIMIT, -LIMIT, 1_700_000_000_000_000
    marks = [END, IDLE_MARK, RESUMED_MARK, *map(time_mark, times)]
    found = [event_time_of_mark(unpack(pack(mark))) for mark in marks]
    assert found == [ENDED, IDLE, RESUMED, *times]
    assert all(is_packed_mark(pack(mark)) for mark in marks)
    others = [ExtType(2, b"end"), b"end", "", 7, {"a": 1}, None, [1], -1.5]
    assert not any(is_packed_mark(pack(other)) for other in others)


def test_record_of_an_unknown_front_is_malformed() -> None:
    for front in (-1, 1):
        with pytest.raises(MalformedMessage, match="front"):
            Clock([0]).record_all([(front, 1, 1)])
