"""Windows contain their elements; aggregates do not depend on how windows were merged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from itertools import pairwise
from math import fsum, inf, isnan, nan
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driftline import Flow, FlowTest, run_reference
from driftline.engine.errors import FlowError
from driftline.engine.event_time import LIMIT, to_microseconds
from driftline.engine.operators.aggregates import (
    Aggregate,
    Collect,
    Count,
    CountDistinct,
    First,
    Last,
    Max,
    Mean,
    Min,
    Reduce,
    Sum,
    Top,
)
from driftline.engine.operators.count_windows import CountWindow
from driftline.engine.operators.windows import (
    Days,
    Hopping,
    Session,
    Tumbling,
    Windows,
)
from driftline.engine.wire.codec import canonical_bytes, round_trip

S = 1_000_000
HOUR = 3600 * S

EVENT_TIMES = st.integers(-300, 300) | st.integers(1 - LIMIT, LIMIT - 1)


def microseconds(number: int) -> timedelta:
    return timedelta(microseconds=number)


DURATIONS = st.integers(1, 40).map(microseconds)
OFFSETS = st.integers(0, 90).map(microseconds)
TUMBLING = st.builds(lambda size, offset: Tumbling(size, offset=offset), DURATIONS, OFFSETS)
HOPPING = st.builds(
    lambda size, every, offset: Hopping(size, every=every, offset=offset),
    *(DURATIONS, DURATIONS, OFFSETS),
)
SESSIONS = st.builds(Session, DURATIONS)
DAYS = st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Asia/Kathmandu"]).map(Days)


@given(TUMBLING | HOPPING | SESSIONS | DAYS, EVENT_TIMES)
def test_event_time_lies_in_each_of_its_windows(windows: Windows, event_time: int) -> None:
    assigned = windows.assign(event_time)
    assert assigned == sorted(set(assigned))
    assert all(start <= event_time < end for start, end in assigned)


@given(TUMBLING | DAYS, EVENT_TIMES)
def test_windows_follow_each_other_without_a_gap(windows: Windows, event_time: int) -> None:
    [(start, end)] = windows.assign(event_time)
    assert windows.assign(start) == windows.assign(end - 1) == [(start, end)]
    assert windows.assign(end)[0][0] == end
    assert windows.assign(start - 1)[0][1] == start


@given(TUMBLING, EVENT_TIMES)
def test_tumbling_windows_begin_at_the_offset(windows: Tumbling, event_time: int) -> None:
    [(start, end)] = windows.assign(event_time)
    assert end - start == windows.size
    assert (start - windows.offset) % windows.size == 0


@given(HOPPING, EVENT_TIMES)
def test_hopping_windows_are_all_that_contain_an_event_time(
    windows: Hopping, event_time: int
) -> None:
    near = (event_time - windows.offset) // windows.every
    around = range(near - windows.size // windows.every - 1, near + 2)
    starts = [n * windows.every + windows.offset for n in around]
    assert windows.assign(event_time) == [
        (start, start + windows.size)
        for start in starts
        if start <= event_time < start + windows.size
    ]


@given(HOPPING.filter(lambda windows: windows.overlap), EVENT_TIMES)
def test_pane_contains_the_event_times_with_the_same_windows(
    windows: Hopping, event_time: int
) -> None:
    start, end = windows.pane(event_time)
    assert start <= event_time < end
    assert windows.assign(start) == windows.assign(event_time) == windows.assign(end - 1)
    assert windows.assign(start - 1) != windows.assign(event_time) != windows.assign(end)


@pytest.mark.parametrize(
    ("zone", "day", "hours", "start"),
    [
        ("Europe/Berlin", (2024, 3, 30), 24, "2024-03-30T00:00:00+01:00"),
        ("Europe/Berlin", (2024, 3, 31), 23, "2024-03-31T00:00:00+01:00"),
        ("Europe/Berlin", (2024, 4, 1), 24, "2024-04-01T00:00:00+02:00"),
        ("Europe/Berlin", (2024, 10, 27), 25, "2024-10-27T00:00:00+02:00"),
        ("Europe/Berlin", (2024, 10, 28), 24, "2024-10-28T00:00:00+01:00"),
        ("Europe/Berlin", (2024, 2, 29), 24, "2024-02-29T00:00:00+01:00"),
        ("Europe/Berlin", (1969, 12, 31), 24, "1969-12-31T00:00:00+01:00"),
        ("UTC", (2024, 3, 31), 24, "2024-03-31T00:00:00Z"),
        ("Australia/Lord_Howe", (2024, 4, 7), 24.5, "2024-04-07T00:00:00+11:00"),
        # Chile changes its clock at midnight: this day begins at 01:00.
        ("America/Santiago", (2024, 9, 8), 23, "2024-09-08T01:00:00-03:00"),
        ("America/Santiago", (2024, 4, 6), 25, "2024-04-06T00:00:00-03:00"),
        # In Cuba, midnight comes twice. Samoa left out December 30.
        ("America/Havana", (2024, 11, 3), 25, "2024-11-03T00:00:00-04:00"),
        ("Pacific/Apia", (2011, 12, 29), 24, "2011-12-29T00:00:00-10:00"),
        ("Pacific/Apia", (2011, 12, 31), 24, "2011-12-31T00:00:00+14:00"),
    ],
)
def test_days_have_the_hours_of_their_zone(
    zone: str, day: tuple[int, int, int], hours: float, start: str
) -> None:
    windows = Days(zone)
    noon = to_microseconds(datetime(*day, 12, tzinfo=ZoneInfo(zone)))
    [(begin, end)] = windows.assign(noon)
    assert end - begin == hours * HOUR
    assert windows.describe(begin) == start
    for event_time in range(begin, end, HOUR // 2):
        assert windows.assign(event_time) == [(begin, end)]
    assert windows.assign(begin - 1)[0][1] == begin
    assert windows.assign(end)[0][0] == end


def test_day_contains_an_hour_that_comes_again_after_midnight() -> None:
    """In Newfoundland, the clock went back from 00:01 to 23:01 of the day before."""
    event_time = to_microseconds("2010-11-06T23:30:00-03:30")
    [(start, end)] = Days("America/St_Johns").assign(event_time)
    assert start <= event_time < end


FEBRUARY_OR_MARCH = st.builds(
    lambda year, day: datetime(year, 2, 27, 12) + timedelta(days=day),
    st.sampled_from([1600, 1700, 1896, 1900, 1904, 1968, 1972, 2000, 2024, 2100, 3000]),
    st.integers(0, 3),
)


@given(
    DAYS, st.datetimes(datetime(900, 1, 1), datetime(3100, 1, 1)) | FEBRUARY_OR_MARCH, st.booleans()
)
def test_day_is_the_date_in_its_zone(windows: Days, moment: datetime, fold: bool) -> None:
    moment = moment.replace(tzinfo=windows.zone, fold=fold)
    event_time = to_microseconds(moment)
    local = datetime.fromtimestamp(0, UTC) + microseconds(event_time)
    day = local.astimezone(windows.zone).date()  # not that of `moment`, if the clock skipped it
    [(start, end)] = windows.assign(event_time)
    assert windows.describe(start)[:10] == str(day)
    assert windows.describe(end)[:10] == str(day + timedelta(days=1))


INVALID: dict[str, tuple[Callable[[], object], str]] = {
    "size 0": (lambda: Tumbling(0), "size of a tumbling window cannot be 0: give a duration such"),
    "negative size": (lambda: Tumbling("-1s"), "size of a tumbling window cannot be '-1s'"),
    "size without unit": (lambda: Tumbling("5"), "size of a tumbling window cannot be '5'"),
    "below a microsecond": (lambda: Tumbling(1e-9), "size of a tumbling window"),
    "negative offset": (lambda: Tumbling(5, offset=-1), "offset of a tumbling window cannot be -1"),
    "hopping size": (lambda: Hopping("x", every=1), "size of a hopping window cannot be 'x'"),
    "every 0": (lambda: Hopping(1, every=0), "every of a hopping window cannot be 0"),
    "too many": (
        lambda: Hopping("1h", every="1s"),
        "in 3600 hopping windows of '1h' every '1s'; give a larger every, .* at most 1000",
    ),
    "gap": (lambda: Session(timedelta()), r"gap of sessions cannot be datetime.timedelta\(0\)"),
    "no gap": (lambda: Session(None), "gap of sessions cannot be None"),  # type: ignore[arg-type]
    "zone": (lambda: Days("Europe/Bonn"), "unknown time zone 'Europe/Bonn'; give .* 'UTC'"),
    "no zone": (lambda: Days(""), "unknown time zone ''"),
    "path": (lambda: Days("../etc/passwd"), "unknown time zone '../etc/passwd'"),
    "zone of another type": (lambda: Days(UTC), "unknown time zone"),  # type: ignore[arg-type]
    "field": (lambda: Sum(1.5), r"Sum\(1.5\): give a field's name, a position or a function"),  # type: ignore[arg-type]
    "bool field": (lambda: Min(True), r"Min\(True\): give a field's name"),
    "top 0": (lambda: Top(0, "price"), r"Top\(0\): give the number of elements, at least 1"),
    "top True": (lambda: Top(True, "price"), r"Top\(True\): give the number of elements"),
}


@pytest.mark.parametrize(("make", "text"), INVALID.values(), ids=INVALID)
def test_invalid_argument_is_named_in_the_error(make: Callable[[], object], text: str) -> None:
    with pytest.raises(FlowError, match=text):
        make()


# Aggregates. -------------------------------------------------------------------------------------

Element = tuple[int, Any]
"""(event time, value)."""

INTS = st.integers(-(2**59), 2**59) | st.integers(-3, 3)
FLOATS = st.floats(allow_nan=False, allow_infinity=False, width=64).map(lambda x: x / 1e10)
AWKWARD = st.sampled_from([1e16, -1e16, 1.0, 0.1, 1e-30, 1e290, -1e290, -0.0, 3.0])
HUGE = st.sampled_from([1.5e308, -1.5e308, 1e292, -5e-324])
NUMBERS = INTS | FLOATS | AWKWARD
TEXTS = st.sampled_from(["", "a", "b", "ä"])


def plain_sum(values: Sequence[Any]) -> Any:
    """Return the sum, rounded once."""
    floats = [value for value in values if isinstance(value, float)]
    total = sum(value for value in values if isinstance(value, int))
    exact = sum(map(Fraction, floats), Fraction(total))
    try:
        return float(exact) if floats else total
    except OverflowError:
        return inf if exact > 0 else -inf


def plain_first(elements: Sequence[Element]) -> Any:
    return next(value for at, value in elements if at == min(at for at, _ in elements))


def plain_last(elements: Sequence[Element]) -> Any:
    return next(value for at, value in elements[::-1] if at == max(at for at, _ in elements))


def join(one: str, other: str) -> str:
    return f"{one}{other}"


Plain = Callable[[Sequence[Element], list[Any]], Any]
"""Takes elements and their values, and returns the result in plain Python."""

AGGREGATES: dict[str, tuple[Aggregate, st.SearchStrategy[Any], Plain]] = {
    "count": (Count(), NUMBERS, lambda elements, values: len(values)),
    "sum": (Sum(), NUMBERS, lambda elements, values: plain_sum(values)),
    "sum of ints": (Sum(), INTS, lambda elements, values: sum(values)),
    "sum of huge floats": (Sum(), HUGE | INTS, lambda elements, values: plain_sum(values)),
    "sum of floats": (Sum(), FLOATS | AWKWARD, lambda elements, values: fsum(values)),
    "mean": (
        Mean(),
        FLOATS | AWKWARD | st.integers(-(10**15), 10**15),
        lambda elements, values: plain_sum(values) / len(values),
    ),
    "min": (Min(), NUMBERS, lambda elements, values: min(values)),
    "max": (Max(), NUMBERS, lambda elements, values: max(values)),
    "max of texts": (Max(), TEXTS, lambda elements, values: max(values)),
    "first": (First(), NUMBERS, lambda elements, values: plain_first(elements)),
    "last": (Last(), NUMBERS, lambda elements, values: plain_last(elements)),
    "distinct": (
        CountDistinct(),
        st.sampled_from([0, 0.0, -0.0, False, "", b"", None, (), (0,), 1, True, 1.0]),
        lambda elements, values: len({repr(value) for value in values}),
    ),
    "collect": (Collect(), TEXTS, lambda elements, values: tuple(values)),
    "top": (
        Top(3, lambda value: value),
        NUMBERS,
        lambda elements, values: tuple(sorted(values, reverse=True)[:3]),
    ),
    "reduce": (Reduce(join), TEXTS, lambda elements, values: "".join(values)),
}


def folded(aggregate: Aggregate, elements: Sequence[Element]) -> Any:
    """Return the accumulator; it travels after each element, as in a snapshot."""
    accumulator = aggregate.zero()
    for at, value in elements:
        accumulator = round_trip(aggregate.add_at(accumulator, value, at))
    return accumulator


@pytest.mark.parametrize("name", AGGREGATES)
@settings(max_examples=30)
@given(data=st.data())
def test_aggregate_of_merged_windows_is_that_of_all_elements(
    name: str, data: st.DataObject
) -> None:
    aggregate, values, plain = AGGREGATES[name]
    elements: list[Element] = data.draw(
        st.lists(st.tuples(st.integers(-3, 3), values), min_size=1, max_size=14)
    )
    cuts = sorted(data.draw(st.lists(st.integers(0, len(elements)), max_size=3)))
    merged = aggregate.zero()
    for start, end in pairwise([0, *cuts, len(elements)]):
        merged = aggregate.merge(merged, folded(aggregate, elements[start:end]))
    expected = canonical_bytes(plain(elements, [value for _, value in elements]))
    assert canonical_bytes(aggregate.result(folded(aggregate, elements))) == expected
    assert canonical_bytes(aggregate.result(merged)) == expected


def test_sum_of_a_large_int_and_a_float_is_rounded_once() -> None:
    assert Sum().result(folded(Sum(), [(0, 15_812_499_999_999_145), (0, 1.0)])) == 15812499999999146


@pytest.mark.parametrize(
    "values",
    [(inf, 1.0), (1.0, -inf, 5), (inf, -inf), (float("nan"), 1), (-inf, 1e308, 1e308)],
)
def test_sum_of_infinities_is_that_of_python(values: tuple[float, ...]) -> None:
    found = Sum().result(folded(Sum(), [(0, value) for value in values]))
    assert found == sum(values) or (isnan(found) and isnan(sum(values)))


@pytest.mark.parametrize("aggregate", [Sum(), Mean()])
@pytest.mark.parametrize("value", ["1", None, (1,)])
def test_sum_of_no_number_names_the_value(aggregate: Aggregate, value: object) -> None:
    with pytest.raises(TypeError, match=f"{type(aggregate).__name__} of .* is not a number"):
        aggregate.add(aggregate.zero(), value)


@pytest.mark.parametrize("aggregate", [Min(), Max(), Top(2, lambda element: element)])
def test_nan_has_no_place_in_an_order(aggregate: Aggregate) -> None:
    for value in nan, (1, nan):
        with pytest.raises(ValueError, match=f"{type(aggregate).__name__} of nan"):
            aggregate.add(aggregate.zero(), value)


@pytest.mark.parametrize("field", ["price", 0, lambda element: element["price"]])
def test_field_is_a_name_a_position_or_a_function(field: Any) -> None:
    element: Any = (7,) if field == 0 else {"price": 7}
    for aggregate in (Sum(field), Min(field), First(field), Collect(field), Mean(field)):
        result = aggregate.result(folded(aggregate, [(0, element)]))
        assert result in (7, 7.0, (7,))
    assert Top(1, field).result(folded(Top(1, field), [(0, element)])) == (element,)


def test_count_windows_have_a_row_per_full_window() -> None:
    """Elements are in label order, also in the reference and after a kill."""
    flow = Flow("threes")
    keyed = flow.source("numbers").key_by(lambda number: number % 2)
    rows = keyed.window(CountWindow(3)).aggregate(
        first=First(), last=Last(), total=Sum(), values=Collect()
    )
    rows.sink("rows")
    expected = [
        {"key": 0, "number": 1, "first": 0, "last": 4, "total": 6, "values": (0, 2, 4)},
        {"key": 1, "number": 1, "first": 1, "last": 5, "total": 9, "values": (1, 3, 5)},
        {"key": 0, "number": 2, "first": 6, "last": 10, "total": 24, "values": (6, 8, 10)},
        {"key": 1, "number": 2, "first": 7, "last": 11, "total": 27, "values": (7, 9, 11)},
    ]
    assert [item.value for item in run_reference(flow, [range(14)])] == expected
    with FlowTest(flow, nodes=2) as test:
        for number in range(14):
            test.send("numbers", number, settle=False)
        test.kill("node-1")
        assert sorted(test.outputs("rows"), key=str) == sorted(expected, key=str)


def test_count_windows_reject_what_they_cannot_do() -> None:
    keyed = Flow("f").source("s").key_by(0)
    rejected: list[tuple[Callable[[], object], str]] = [
        (lambda: CountWindow(0), "at least 1"),
        (lambda: keyed.window(CountWindow(2), lateness="1s"), "no element is late"),
        (lambda: keyed.window(CountWindow(2)).late, "no late elements"),
        (lambda: keyed.window(CountWindow(2)).aggregate(emit="updates", n=Count()), "be 'final'"),
        (lambda: keyed.window(CountWindow(2)).aggregate(number=Count()), "their own 'number'"),
    ]
    for call, text in rejected:
        with pytest.raises(FlowError, match=text):
            call()


class Largest(Aggregate):
    """Largest value per word; the accumulator arrives as a dict, not as a Counter."""

    def zero(self) -> Counter[str]:
        return Counter()

    def add(self, accumulator: dict[str, int], element: tuple[str, int, int]) -> dict[str, int]:
        return accumulator | Counter({element[0]: element[2]})

    def merge(self, one: dict[str, int], other: dict[str, int]) -> dict[str, int]:
        return one | other


@pytest.mark.parametrize(
    ("windows", "emit"),
    [
        (Tumbling(60), "final"),
        (Tumbling(60), "updates"),
        (Hopping(60, every=30), "final"),
        (Session(60), "final"),
        (CountWindow(2), "final"),
    ],
)
def test_reference_keeps_accumulators_as_states_do(
    windows: Windows | CountWindow, emit: str
) -> None:
    flow = Flow("largest")
    keyed = flow.source("s", event_time=1).key_by(0).window(windows)
    keyed.aggregate(largest=Largest(), emit=emit).sink("rows")
    records = [("x", 1, 5), ("x", 2, 2), ("x", 3, 1)]
    with FlowTest(flow) as test:
        for record in records:
            test.send("s", record)
        test.end()
        found = test.outputs("rows")
    assert sorted(map(str, found)) == sorted(
        str(item.value) for item in run_reference(flow, [records])
    )
