"""Timers and windows: rows of an independent oracle, and of the engine under kills."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from enum import IntEnum
from functools import partial
from itertools import chain, count
from typing import Any, cast
from unittest.mock import Mock
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driftline import FlowError, FlowTest, run_reference
from driftline.engine.errors import FunctionFailed
from driftline.engine.event_time import (
    END,
    TIMER_LIMIT,
    Clock,
    Watermark,
    event_time_of,
    timestamped,
    to_microseconds,
)
from driftline.engine.flow.flow import Flow
from driftline.engine.flow.streams import Stream
from driftline.engine.operators import timers
from driftline.engine.operators.aggregates import Collect, Count, Sum
from driftline.engine.operators.context import Context, Failure
from driftline.engine.operators.steps import FAILURES, FailureReporter, Signs, Values
from driftline.engine.operators.timed import TimedStep
from driftline.engine.operators.timers import FIRINGS_AT_END_MAX, TimedContext, Timer
from driftline.engine.operators.windows import Days, Hopping, Session, Tumbling, Windows
from driftline.engine.reference import interpret
from driftline.engine.snapshots.merging import encode_segment, restore
from driftline.engine.state.managed import ListState, MapState, ReducingState, ValueState
from driftline.engine.wire.bundles import Item
from driftline.engine.wire.label_columns import Labels

S = 1_000_000
"""Microseconds of a second."""

SIZE = 10
GAP = 6

Record = dict[str, Any]
Row = tuple[int, int, str, int, int, list[int]]
"""Time of the root at which a row leaves; end and start of its window; user, count, and ids."""


Intervals = Callable[[int], list[tuple[int, int]]]
"""Event time in seconds -> start and end of its windows."""


# An oracle in plain Python: seconds instead of microseconds, one list instead of states. ---------


@dataclass
class Oracle:
    """Rows and late ids of windows, from their definition."""

    records: Sequence[Record]
    max_delay: int
    lateness: int

    def __post_init__(self) -> None:
        times = [record["at"] for record in self.records]
        self.watermarks = [max(times[: i + 1]) - self.max_delay for i in range(len(times))]

    def leaves_at(self, end: int) -> int:
        """Return the time of the root at which a window leaves; records have times from 1 on."""
        passed = (i for i, w in enumerate(self.watermarks, 1) if w >= end + self.lateness)
        return next(passed, len(self.records) + 1)

    def is_late(self, index: int, end: int) -> bool:
        return bool(end + self.lateness <= self.watermarks[index])

    def intervals(self, of: Intervals) -> tuple[list[Row], list[int]]:
        """Return the rows and late ids of windows that do not merge. `of`: windows of a second."""
        members = defaultdict[tuple[int, int, str], list[int]](list)
        late = []
        for i, record in enumerate(self.records):
            missed = []
            for start, end in of(record["at"]):
                if self.is_late(i, end):
                    missed.append((start, end))
                else:
                    members[end, start, record["user"]].append(record["id"])
            if missed and missed == of(record["at"]):
                late.append(record["id"])
        rows = [self._row(end, start, user, ids) for (end, start, user), ids in members.items()]
        return sorted(rows), late

    def sessions(self) -> tuple[list[Row], list[int]]:
        """Return the components of overlapping intervals, among those that have not left."""
        rows, late = list[Row](), list[int]()
        for user in {record["user"] for record in self.records}:
            sessions: list[list[int]] = []  # of indices
            for i in (i for i, record in enumerate(self.records) if record["user"] == user):
                at = self.records[i]["at"]
                near = [
                    session
                    for session in sessions
                    if self.leaves_at(self._end(session)) > i  # it has not left before record i
                    and any(abs(at - self.records[other]["at"]) <= GAP for other in session)
                ]
                joined = [*chain.from_iterable(near), i]
                if self.is_late(i, self._end(joined)):
                    late.append(self.records[i]["id"])
                    continue
                sessions = [session for session in sessions if session not in near] + [joined]
            for session in sessions:
                start = min(self.records[i]["at"] for i in session)
                ids = sorted(self.records[i]["id"] for i in session)
                rows.append(self._row(self._end(session), start, user, ids))
        return sorted(rows), sorted(late)

    def _end(self, session: Iterable[int]) -> int:
        return int(max(self.records[i]["at"] for i in session) + GAP)

    def _row(self, end: int, start: int, user: str, ids: list[int]) -> Row:
        return (self.leaves_at(end), end, user, start, len(ids), ids)


def seconds(text: str) -> int:
    return to_microseconds(text) // S


def rows_of(items: Iterable[Item]) -> list[Row]:
    """Return the rows in the form of the oracle. Keys of one root and time may be in any order."""
    found = []
    for item in items:
        row = item.value
        assert isinstance(row, dict)
        assert row["spent"] == sum(row["ids"])
        times = seconds(row["end"]), seconds(row["start"])
        ids = sorted(row["ids"])
        found.append((item.label[0], times[0], row["key"], times[1], row["count"], ids))
    assert [row[:2] for row in found] == sorted(row[:2] for row in found), "rows leave in order"
    return sorted(found)


def window_flow(
    windows: Windows, max_delay: int, lateness: int = 0, emit: str = "final"
) -> tuple[Flow, str]:
    """Return a flow with rows and late elements, and the name of its window operator."""
    flow = Flow("views")
    views = flow.source("views", event_time="at", max_delay=max_delay)
    windowed = views.key_by("user").window(windows, lateness=lateness)
    rows = windowed.aggregate(
        emit=emit, name="per user", count=Count(), spent=Sum("id"), ids=Collect("id")
    )
    rows.sink("rows")
    windowed.late.sink("late")
    return flow, "per user"


@st.composite
def record_lists(draw: st.DrawFn, size: int = 40) -> list[Record]:
    """Records whose event times grow, with some disorder."""
    steps = draw(
        st.lists(
            st.tuples(st.sampled_from("abc"), st.integers(0, 6), st.integers(-25, 0)),
            max_size=size,
        )
    )
    now, records = -20, []
    for number, (user, ahead, behind) in enumerate(steps):
        now += ahead
        records.append({"user": user, "at": now + behind * (number % 2), "id": number})
    return records


DELAYS = st.sampled_from([0, 3, 12])
LATENESS = st.sampled_from([0, 4])


DAY = 24 * 3600


def berlin_day(at: int) -> list[tuple[int, int]]:
    """Return the day of a second in Berlin, found hour by hour."""
    zone = ZoneInfo("Europe/Berlin")

    def date_of(second: int) -> date:
        return datetime.fromtimestamp(second, zone).date()

    hour, inside = at // 3600 * 3600, date_of(at)
    start = next(each for each in count(hour, -3600) if date_of(each - 1) < inside)
    end = next(each for each in count(hour + 3600, 3600) if date_of(each) > inside)
    return [(start, end)]


def any_interval(size: int, every: int, offset: int, at: int) -> list[tuple[int, int]]:
    """Return the windows of a second, of all that begin near it."""
    starts = [start for start in range(at - size, at + 1) if (start - offset) % every == 0]
    return [(start, start + size) for start in starts if start <= at < start + size]


DEFINITIONS: dict[str, tuple[Windows, Intervals | None, int, Sequence[str]]] = {
    "tumbling": (Tumbling(SIZE), partial(any_interval, SIZE, SIZE, 0), 1, ()),
    "offset": (Tumbling(SIZE, offset=3), partial(any_interval, SIZE, SIZE, 3), 1, ()),
    "large offset": (Tumbling(SIZE, offset=27), partial(any_interval, SIZE, SIZE, 27), 1, ()),
    "hopping": (Hopping(15, every=5), partial(any_interval, 15, 5, 0), 1, ()),
    "uneven hopping": (Hopping(11, every=4), partial(any_interval, 11, 4, 0), 1, ()),
    "shifted hopping": (Hopping(11, every=4, offset=7), partial(any_interval, 11, 4, 7), 1, ()),
    "barely hopping": (Hopping(12, every=11), partial(any_interval, 12, 11, 0), 1, ()),
    "gaps": (Hopping(4, every=7), partial(any_interval, 4, 7, 0), 1, ()),
    "days": (
        Days(),
        lambda at: [(at // DAY * DAY, at // DAY * DAY + DAY)],
        9000,
        ["1900-02-28", "1968-02-29", "2000-02-28", "2100-02-28"],
    ),
    "days of Berlin": (
        Days("Europe/Berlin"),
        berlin_day,
        9000,
        ["1968-02-28", "2024-02-29", "2024-03-30", "2024-10-27"],
    ),
    "sessions": (Session(GAP), None, 1, ()),
}
"""Name -> windows; their definition, if they do not merge; factor of the records' times; dates at
which the records begin."""


@pytest.mark.parametrize("kind", DEFINITIONS)
@settings(max_examples=30)
@given(
    data=st.data(),
    records=record_lists(),
    begin=st.sampled_from([0, -3, 1_709_164_800, -58_060_810]),
    max_delay=DELAYS,
    lateness=LATENESS,
)
def test_rows_and_late_elements_follow_from_the_definition(
    kind: str,
    data: st.DataObject,
    records: list[Record],
    begin: int,
    max_delay: int,
    lateness: int,
) -> None:
    windows, definition, unit, dates = DEFINITIONS[kind]
    if dates:
        begin = seconds(data.draw(st.sampled_from(dates)))
    records = [record | {"at": record["at"] * unit + begin} for record in records]
    flow, _ = window_flow(windows, max_delay * unit, lateness * unit)
    items = list(run_reference(flow, [records]))
    oracle = Oracle(records, max_delay * unit, lateness * unit)
    rows, late = oracle.sessions() if definition is None else oracle.intervals(definition)
    assert rows_of(item for item in items if item.sink == 0) == rows
    values: list[Any] = [item.value for item in items if item.sink == 1]
    assert sorted(value["record"]["id"] for value in values) == late
    for value in values:
        record = records[value["record"]["id"]]
        assert seconds(value["event_time"]) == record["at"]
        assert seconds(value["watermark"]) == oracle.watermarks[record["id"]]
        expected = None if definition is None else definition(record["at"])
        missed = [(seconds(start), seconds(end)) for start, end in value["windows"]]
        assert len(missed) == 1 if expected is None else missed == expected


# The engine against the reference interpreter. ---------------------------------------------------


def by_sink(flow: Flow, items: Iterable[Item]) -> dict[str, list[Item]]:
    """Return the items of each sink, and of failures, in label order."""
    found: dict[str, list[Item]] = {
        name: [] for name in ("failures", *(sink.name for sink in flow.sinks))
    }
    for item in sorted(items, key=lambda item: item.label):
        name = "failures" if item.sink == FAILURES else flow.sinks[item.sink].name
        found[name].append(item)
    return found


def run_killed(
    flow: Flow, records: Sequence[Record], nodes: int, kills: Mapping[int, str], seed: int = 0
) -> dict[str, list[Item]]:
    """Return all items of a `FlowTest`. `kills`: record -> process to kill after it."""
    with FlowTest(flow, nodes=nodes, seed=seed, dead_letters=True) as test:
        for i, record in enumerate(records):
            test.send(record, settle=False)
            if i in kills:
                test.kill(kills[i])
        test.end()
        return by_sink(flow, [item for sink in flow.sinks for item in test.items(sink.name)]) | {
            "failures": test._items(FAILURES)
        }


KINDS = [
    Tumbling(SIZE, offset=3),
    Hopping(15, every=5),
    Hopping(11, every=4, offset=3),
    Hopping(4, every=7),
    Session(GAP),
    Days("Europe/Berlin"),
]


@pytest.mark.parametrize("windows", KINDS, ids=lambda windows: type(windows).__name__)
@settings(max_examples=15)
@given(
    records=record_lists(30),
    max_delay=DELAYS,
    lateness=LATENESS,
    emit=st.sampled_from(["final", "updates"]),
    nodes=st.integers(1, 3),
    who=st.sampled_from(["node-0", "front-0", "master", "consumer"]),
    seed=st.integers(0, 1000),
)
def test_kill_leaves_windows_as_the_reference_has_them(
    windows: Windows,
    records: list[Record],
    max_delay: int,
    lateness: int,
    emit: str,
    nodes: int,
    who: str,
    seed: int,
) -> None:
    flow, _ = window_flow(windows, max_delay, lateness, emit)
    kills = {len(records) // 3: "node-0", 2 * len(records) // 3: who}
    expected = by_sink(flow, run_reference(flow, [records]))
    assert run_killed(flow, records, nodes, kills, seed) == expected


def test_state_contains_only_open_windows() -> None:
    flow, name = window_flow(Tumbling(SIZE), max_delay=0, lateness=5)
    with FlowTest(flow) as test:
        for at in (1, 12, 23, 14):
            test.send({"user": "a", "at": at, "id": at})
            kept = test.state(name, "a")
            open_windows = kept["windows"]
            assert isinstance(open_windows, dict)
            newest = max(at, 23 if at == 14 else 0)
            ends = [end for end, _ in open_windows.values()]
            assert [end // S for end in ends] == [
                end for end in (10, 20, 30) if newest < end + 5 and end - SIZE <= newest
            ]
            timers = {str(start): end + 5 * S for start, (end, _) in open_windows.items()}
            assert kept["(timers)"] == timers
        test.end()
        assert test.state(name, "a") == {"windows": {}, "(timers)": {}}


def test_updates_are_preliminary_until_the_last_row() -> None:
    flow, _ = window_flow(Tumbling(SIZE), max_delay=0, emit="updates")
    records = [{"user": "a", "at": at, "id": at} for at in (1, 4, 11)]
    rows: list[Any] = [item.value for item in run_reference(flow, [records]) if item.sink == 0]
    assert [(row["ids"], row["preliminary"]) for row in rows] == [
        ((1,), True),
        ((1, 4), True),
        ((11,), True),
        ((1, 4), False),
        ((11,), False),
    ]


def test_rows_have_no_preliminary_field_without_updates() -> None:
    flow, _ = window_flow(Tumbling(SIZE), max_delay=0)
    [row] = run_reference(flow, [[{"user": "a", "at": 1, "id": 7}]])
    assert row.value == {
        "key": "a",
        "start": "1970-01-01T00:00:00Z",
        "end": "1970-01-01T00:00:10Z",
        "count": 1,
        "spent": 7,
        "ids": (7,),
    }


@pytest.mark.parametrize("jump", [False, True])
def test_windows_of_windows_have_all_rows(jump: bool) -> None:
    """The row of a window belongs to the larger window that contains it."""
    flow = Flow("rollup")
    views = flow.source("views", event_time="at")
    small = views.key_by("user").window(Tumbling(10)).aggregate(count=Count())
    large = small.key_by("key").window(Tumbling(20))
    large.aggregate(count=Sum("count")).sink("rows")
    large.late.sink("late")
    records = [{"user": "a", "at": at} for at in (1, 2, 11, 25, 100 if jump else 35)]
    items = by_sink(flow, run_reference(flow, [records]))
    assert items["late"] == []
    rows: list[Any] = [item.value for item in items["rows"]]
    found = [(seconds(row["start"]), row["count"]) for row in rows]
    assert found == [(0, 3), (20, 1), (100, 1)] if jump else [(0, 3), (20, 2)]


@pytest.mark.parametrize(
    ("emit", "prices"),
    [("final", [1, "x", 5]), ("final", [2**63, 2**63, 5]), ("updates", [2**63, 2**63, 5])],
)
def test_element_that_an_aggregate_rejects_is_a_dead_letter(emit: str, prices: list[Any]) -> None:
    flow = Flow("prices")
    windowed = flow.source("records", event_time="at").key_by("user").window(Tumbling(SIZE))
    windowed.aggregate(emit=emit, name="sums", spent=Sum("price")).sink("rows")
    records = [{"user": "a", "at": at, "price": price} for at, price in enumerate(prices)]
    found = run_killed(flow, records, 2, {1: "node-0"})
    [failure] = [Failure.from_payload(item.value) for item in found["failures"]]
    assert (failure.operator, failure.record) == ("sums", records[1])
    last: Any = found["rows"][-1].value
    assert last["spent"] == prices[0] + prices[2]
    assert found == by_sink(flow, run_reference(flow, [records], dead_letters=True))


class RejectsNine(Sum):
    """Sum that raises as a result, if it is nine."""

    def result(self, accumulator: Any) -> Any:
        if super().result(accumulator) == 9:
            raise ValueError("nine")
        return super().result(accumulator)


@pytest.mark.parametrize("windows", [Session(10), Tumbling(10), Hopping(10, every=5)])
def test_window_whose_row_fails_is_dropped(windows: Windows) -> None:
    flow = Flow("rejects nine")
    keyed = flow.source("records", event_time="at", max_delay=3).key_by("user")
    keyed.window(windows).aggregate(name="sums", total=RejectsNine("n")).sink("rows")
    given = [
        {"user": u, "at": at, "n": n} for u, at, n in (("a", 1, 9), ("b", 20, 1), ("a", 18, 2))
    ]
    with FlowTest(flow, dead_letters=True) as test:
        for record in given:
            test.send("records", record)
        test.end()
        assert not any(test.state("sums", "a").values())
        found = [*test.outputs(), *(failure.error for failure in test.failures)]
    items = run_reference(flow, [given], dead_letters=True)
    expected = [
        Failure.from_payload(item.value).error if item.sink == FAILURES else item.value
        for item in items
    ]
    assert sorted(map(str, found)) == sorted(map(str, expected))
    assert any("nine" in str(each) for each in found)


def test_open_windows_wait_for_a_lateness_that_has_grown() -> None:
    """The code changes between a snapshot and the next start."""

    class Rows:
        def __init__(self) -> None:
            self.found: list[tuple[int, object]] = []

        def push(self, labels: Labels, values: Values, signs: Signs) -> None:
            self.found += zip(map(event_time_of, labels), values, strict=True)

    def step_with(lateness: int) -> tuple[TimedStep, Clock, Rows]:
        flow, clock, rows = Flow("late"), Clock([0]), Rows()
        windows = (
            flow.source("s", event_time=0, unit="us")
            .key_by(1)
            .window(Tumbling(10 / S), lateness=lateness / S)
        )
        windows.aggregate(n=Count(), name="windows").sink()
        step = TimedStep(flow.vertices[1], rows, FailureReporter(Mock()), Watermark(clock, {0: 0}))
        return step, clock, rows

    def send(step: TimedStep, clock: Clock, first: int, event_times: Sequence[int]) -> None:
        for time, at in enumerate(event_times, first):
            step.push([timestamped((time, 0), at)], [(at, "k")], None)
            clock.record(0, time, at)
        clock.complete(first + len(event_times))
        step.apply_until(first + len(event_times))

    old, clock, _ = step_with(0)
    send(old, clock, 1, [5, 8])
    new, new_clock, rows = step_with(20)
    restore({"windows": new.table}, [encode_segment("windows", old.table, list(old.table))])
    new_clock.restore(clock.as_of(3), 3)
    send(new, new_clock, 3, [25, 6, 29, 30])
    assert [(at, row["n"]) for at, row in cast(list[tuple[int, Any]], rows.found)] == [(9, 3)]


# Time to live. -----------------------------------------------------------------------------------

TTL = 10


def count_with_ttl(
    context: Context, record: Record, all_seen: ReducingState[int], seen: MapState[str, int]
) -> list[tuple[int, int, int]]:
    """Count the records of a user, and those with each word."""
    word = "even" if record["id"] % 2 == 0 else "odd"
    seen[word] = seen.get(word, 0) + 1
    return [(record["id"], all_seen.add(1), seen[word])]


def ttl_flow(max_delay: int = 0) -> Flow:
    flow = Flow("ttl")
    (
        flow.source("records", event_time="at", max_delay=max_delay)
        .key_by("user")
        .process(
            count_with_ttl,
            ReducingState[int]("all", lambda one, other: one + other, ttl=TTL),
            MapState[str, int]("seen", ttl=TTL),
            name="count",
        )
        .sink("counts")
    )
    return flow


@given(records=record_lists(), max_delay=DELAYS)
def test_value_is_dropped_a_ttl_after_its_last_change(
    records: list[Record], max_delay: int
) -> None:
    expected, watermark = [], -1_000_000
    values: dict[tuple[object, ...], tuple[int, int]] = {}  # (user, ...) -> count, when it expires
    newest: dict[object, int] = dict.fromkeys("abc", watermark)
    for record in records:
        user, at = record["user"], record["at"]
        newest[user] = max(newest[user], at)
        values = {
            place: (count, expires)
            for place, (count, expires) in values.items()
            if expires > max(newest[place[0]], watermark)
        }
        counts = [record["id"]]
        for place in ((user,), (user, record["id"] % 2)):
            count, expires = values.get(place, (0, at))
            values[place] = count + 1, max(expires, at + TTL)
            counts.append(count + 1)
        expected.append(tuple(counts))
        watermark = max(watermark, at - max_delay)
    found = [item.value for item in run_reference(ttl_flow(max_delay), [records])]
    assert found == expected


def test_state_contains_only_values_that_have_not_expired() -> None:
    with FlowTest(ttl_flow(), nodes=2) as test:
        for number, user, at in ((0, "a", 0), (1, "a", 5), (2, "b", 11)):
            test.send({"id": number, "user": user, "at": at})
        assert test.state("count", "a")["seen"] == {"odd": 1}
        test.kill("node-0")
        test.send({"id": 3, "user": "b", "at": 30})
        assert test.state("count", "a") == {"all": None, "seen": {}, "(timers)": {}}
        test.send({"id": 5, "user": "a", "at": 31})
        assert test.outputs("counts") == [(0, 1, 1), (1, 2, 1), (2, 1, 1), (3, 1, 1), (5, 1, 1)]


@pytest.mark.parametrize("ttl", [0, -1, "1", "a day", True])
def test_ttl_is_a_duration(ttl: object) -> None:
    with pytest.raises(FlowError, match="ttl of state 'x' cannot be"):
        ValueState("x", ttl=ttl)  # type: ignore[arg-type]


# Timers. -----------------------------------------------------------------------------------------


def scripted(
    context: TimedContext, record: Record, seen: ListState[str]
) -> Iterator[tuple[object, ...]]:
    """Do what a record says: (what, name of a timer, time in seconds)."""
    for what, name, at in record.get("do", ()):
        if what == "set":
            context.timers.set(name, at * S)
        elif what == "after":
            context.timers.set(name, after=f"{at}s")
        elif what == "cancel":
            context.timers.cancel(name)
        elif what == "get":
            found = context.timers.get(name)
            yield "get", name, None if found is None else found // S
        elif what == "raise":
            seen.append("lost")
            raise ValueError(name)
    seen.append(f"at {record['at']}")


def fired(
    context: TimedContext, timer: Timer, seen: ListState[str]
) -> Iterator[tuple[object, ...]]:
    """Emit the timer; its name may contain another action."""
    at = timer.at // S
    seen.append(timer.name)
    if timer.name.startswith("again"):
        context.timers.set(timer.name, timer.at + S)
    if timer.name.startswith("back"):
        context.timers.set("other", timer.at)
    if timer.name.startswith("fail"):
        context.timers.cancel("z")
        raise ValueError(timer.name)
    yield context.key, timer.name, at, tuple(seen), context.event_time == timer.at, context.at_end


def timers_of(records: Stream[Any]) -> Stream[tuple[object, ...]]:
    return records.key_by("key").process(
        scripted, ListState[str]("seen"), on_timer=fired, name="timed"
    )


def timer_flow(max_delay: int = 0) -> Flow:
    flow = Flow("timers")
    timers_of(flow.source("records", event_time="at", max_delay=max_delay)).sink("rows")
    return flow


def on(at: object, *do: tuple[str, str, int], key: str = "k") -> Record:
    """Return a record."""
    return {"key": key, "at": at, "do": do}


def outcome(records: Sequence[Record]) -> tuple[list[Any], list[Failure]]:
    """Return outputs and failures; those of the reference, which the engine has, too."""
    flow = timer_flow()
    expected = by_sink(flow, run_reference(flow, [records], dead_letters=True))
    assert run_killed(flow, records, 2, {len(records) // 2: "node-1"}) == expected
    failures = [Failure.from_payload(item.value) for item in expected["failures"]]
    return [item.value for item in expected["rows"]], failures


def firings(rows: Iterable[Any]) -> list[tuple[str, int]]:
    return [(row[1], row[2]) for row in rows]


CASES: dict[str, tuple[list[Record], list[tuple[str, int]]]] = {
    "set": ([on(1, ("set", "a", 5)), on(4), on(5), on(9)], [("a", 5)]),
    "after": ([on(1, ("after", "a", 5)), on(6)], [("a", 6)]),
    "moved later": ([on(1, ("set", "a", 5), ("set", "a", 7)), on(6), on(8)], [("a", 7)]),
    "moved earlier": ([on(1, ("set", "a", 9)), on(2, ("set", "a", 4)), on(5)], [("a", 4)]),
    "cancelled": ([on(1, ("set", "a", 5), ("set", "b", 5)), on(2, ("cancel", "a", 0))], [("b", 5)]),
    "cancelled without timer": ([on(1, ("cancel", "a", 0), ("set", "b", 2))], [("b", 2)]),
    "of another key": (
        [on(1, ("set", "a", 5)), on(2, ("cancel", "a", 0), key="other"), on(8, key="other")],
        [("a", 5)],
    ),
    "order of times, then names": (
        [on(1, ("set", "b", 5), ("set", "c", 3), ("set", "a", 5), ("set", "d", -4)), on(9)],
        [("d", -4), ("c", 3), ("a", 5), ("b", 5)],
    ),
    "in the past": ([on(8, ("set", "a", 2)), on(9, ("get", "a", 0))], [("a", 2), ("a", None)]),  # type: ignore[list-item]
    "at the end": ([on(1, ("set", "b", 90), ("set", "a", 80))], [("a", 80), ("b", 90)]),
}


@pytest.mark.parametrize(("records", "expected"), CASES.values(), ids=CASES)
def test_timers_fire_in_order(records: list[Record], expected: list[tuple[str, int]]) -> None:
    rows, failures = outcome(records)
    assert firings(rows) == expected
    assert failures == []


def test_timer_fires_after_its_element_and_before_the_next_one() -> None:
    rows, _ = outcome([on(1, ("set", "a", 3)), on(3), on(4)])
    assert rows == [("k", "a", 3, ("at 1", "at 3", "a"), True, False)]
    rows, _ = outcome([on(1, ("set", "a", 3)), on(2)])
    assert rows == [("k", "a", 3, ("at 1", "at 2", "a"), True, True)]


@pytest.mark.parametrize("at", [TIMER_LIMIT, -TIMER_LIMIT - 1])
def test_timer_beyond_the_limit_is_a_failure(at: int) -> None:
    def arm(context: TimedContext, record: Record) -> list[None]:
        context.timers.set("a", at)
        return []

    flow = Flow("beyond")
    records = flow.source("records", event_time="at").key_by("key")
    records.process(arm, on_timer=lambda context, timer: [timer.at]).sink()
    [item] = run_reference(flow, [[on(1)]], dead_letters=True)
    assert "ValueError: timer 'a'" in Failure.from_payload(item.value).error


def test_firing_cannot_set_a_timer_that_is_not_later() -> None:
    rows, [failure] = outcome([on(1, ("set", "back", 3), ("set", "z", 3)), on(5)])
    assert failure.operator == "timed"
    assert failure.error.startswith(
        "ValueError: timer 'other': a timer that fires at 3000000 can only set later timers, "
        "not one at 3000000"
    )
    assert rows == [("k", "z", 3, ("at 1", "at 5", "z"), True, False)]


def test_failed_firing_is_a_dead_letter_and_its_changes_are_undone() -> None:
    rows, [failure] = outcome([on(1, ("set", "fail", 3), ("set", "z", 4)), on(9)])
    assert (failure.operator, failure.key) == ("timed", "'k'")
    assert failure.error == "ValueError: fail"
    assert "test_timed.py" in failure.line
    assert rows == [("k", "z", 4, ("at 1", "at 9", "z"), True, False)]


def test_failed_element_sets_no_timer() -> None:
    doomed = on(2, ("set", "a", 4), ("cancel", "b", 0), ("raise", "no", 0))
    rows, [failure] = outcome([on(1, ("set", "b", 5)), doomed, on(9)])
    assert failure.error == "ValueError: no"
    assert firings(rows) == [("b", 5)]
    assert rows[0][3] == ("at 1", "at 9", "b")


def test_endless_timer_fails_at_the_end_of_the_input() -> None:
    rows, [failure] = outcome([on(1, ("set", "again", 3)), on(5)])
    set_by_elements, before_end = 1, 3  # times 3, 4, 5
    number = before_end + set_by_elements + FIRINGS_AT_END_MAX
    assert firings(rows) == [("again", at) for at in range(3, 3 + number)]
    assert failure.error == (
        "RuntimeError: timer 'again' is set again each time it fires, and the input has ended: set "
        "no timer if context.at_end"
    )
    with pytest.raises(FunctionFailed, match="timer 'again' is set again each time it fires"):
        list(run_reference(timer_flow(), [[on(1, ("set", "again", 3))]]))


def test_any_number_of_timers_may_be_due_at_the_end_of_the_input(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(timers, "FIRINGS_AT_END_MAX", 20)
    number = 50
    flow = Flow("many")
    records = flow.source("records", event_time="at", max_delay=number)
    timers_of(records).sink("timers")
    records.key_by("key").window(Tumbling(1)).aggregate(count=Count()).sink("windows")
    given = [on(at, ("set", f"{at}", at + 1)) for at in range(number)]
    expected = by_sink(flow, run_reference(flow, [given]))
    assert (len(expected["timers"]), len(expected["windows"])) == (number, number)
    assert run_killed(flow, given, 2, {}) == expected


@pytest.mark.parametrize("bad", ["yesterday", "1711121201123", None, True, 1e30, [1]])
def test_record_without_event_time_is_a_dead_letter(bad: object) -> None:
    rows, [failure] = outcome([on(1, ("set", "a", 5)), on(bad, ("set", "b", 2)), on(6)])
    assert failure.operator == "event_time of records"
    assert firings(rows) == [("a", 5)]


# Several sources. --------------------------------------------------------------------------------


def two_source_flow() -> Flow:
    flow = Flow("two")
    one = flow.source("one", event_time="at", max_delay=5)
    other = flow.source("other", event_time="at")
    timers_of(one.union(other)).sink("rows")
    return flow


def test_watermark_is_the_minimum_of_the_sources() -> None:
    with FlowTest(two_source_flow()) as test:

        def fires(source: str, at: int) -> list[tuple[str, int]]:
            test.send(source, on(at))
            return firings(test.take("rows"))

        test.send("one", on(1, ("set", "a", 10), ("set", "b", 20), ("set", "c", 30)))
        assert fires("one", 100) == []  # the other source has no watermark yet
        assert fires("other", 9) == []
        assert fires("other", 20) == [("a", 10), ("b", 20)]
        test.kill("node-0")
        assert fires("other", 29) == []
        assert fires("other", 1) == []  # out of order
        assert fires("other", 30) == [("c", 30)]


def test_ended_source_does_not_hold_back_the_watermark() -> None:
    one = [on(1, ("set", "a", 10), ("set", "b", 20)), on(11), on(15), on(30)]
    items = list(run_reference(two_source_flow(), [one, [on(2)]]))
    # The other source ends at time 2; source one passes 10 at time 3 (11 and 15 minus 5).
    assert [(item.label[0], item.value[1]) for item in items] == [(3, "a"), (4, "b")]  # type: ignore[index]


@settings(max_examples=30)
@given(
    records=record_lists(30),
    of_other=st.sets(st.integers(0, 29)),
    windows=st.sampled_from(KINDS),
    nodes=st.integers(1, 3),
    seed=st.integers(0, 99),
)
def test_kill_leaves_two_sources_and_two_windows_as_the_reference_has_them(
    records: list[Record], of_other: set[int], windows: Windows, nodes: int, seed: int
) -> None:
    flow = Flow("both")
    one = flow.source("one", event_time="at", max_delay=4)
    other = flow.source("other", event_time="at")
    windowed = one.union(other).key_by("user").window(windows)
    windowed.late.sink("late")
    rows = windowed.aggregate(ids=Collect("id"))
    rows.sink("rows")
    rows.key_by(lambda row: len(row["ids"])).window(Session(30)).collect().sink("rows of rows")
    pairs: tuple[list[tuple[int, object]], list[tuple[int, object]]] = ([], [])
    with FlowTest(flow, nodes=nodes, seed=seed) as test:
        for i, record in enumerate(records):
            test.send("other" if i in of_other else "one", record, settle=False)
            pairs[i in of_other].append((i + 1, record))
            if i == len(records) // 2:
                test.kill("node-0")
        test.end()
        found = {sink.name: test.items(sink.name) for sink in flow.sinks}
    for i, of_source in enumerate(pairs, 1):
        of_source.append((len(records) + i, END))  # where `FlowTest` ends them
    expected = by_sink(flow, interpret(flow, pairs, unended=(0, 1)))
    assert found | {"failures": []} == expected


# Flows that cannot run. --------------------------------------------------------------------------


def test_flow_with_timers_names_the_source_without_event_times() -> None:
    flow = Flow("bad")
    dated = flow.source("dated", event_time="at")
    timers_of(dated.union(flow.source("undated"))).sink()
    with pytest.raises(
        FlowError,
        match=r"process 'timed' of flow 'bad' needs event times: give source 'undated' its",
    ):
        flow.validate()


@pytest.mark.parametrize("policy", ["none", "at-least-once", "two-phase", "strong-productions"])
def test_policy_without_label_order_is_rejected(policy: str) -> None:
    for flow, what in (
        (timer_flow(), "process 'timed'"),
        (window_flow(Tumbling(1), 0)[0], "window 'per user'"),
    ):
        with pytest.raises(FlowError, match=f"^{what} .* exactly-once, not {policy}"):
            FlowTest(flow, policy=policy)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"event_time": "at", "unit": "minutes"}, "source 's': the unit is 'minutes'"),
        ({"event_time": "at", "max_delay": "5 parsecs"}, "source 's': max_delay cannot be"),
        ({"event_time": "at", "max_delay": -1}, "source 's': max_delay cannot be -1"),
        ({"event_time": True}, r"source 's': event_time=True: give a function"),
        ({"event_time": "at", "fields": ("a", "b")}, "unknown field, the fields are a, b"),
    ],
)
def test_source_with_invalid_event_time_is_rejected(arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(FlowError, match=text):
        Flow("bad").source("s", **arguments)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({}, "needs aggregates"),
        ({"emit": "sometimes", "n": Count()}, "'final' or 'updates'"),
        ({"n": Count}, "give an aggregate"),
        ({"start": Count()}, "rows have their own 'start'"),
    ],
)
def test_invalid_aggregate_is_rejected(arguments: dict[str, Any], text: str) -> None:
    windows = Flow("bad").source("s", event_time="at").key_by(0).window(Tumbling(1))
    with pytest.raises(FlowError, match=text):
        windows.aggregate(**arguments)


class Deadline(IntEnum):
    """A time that is no plain int."""

    FIRST = 20


def test_timer_at_an_int_enum_fires_like_one_at_an_int() -> None:
    def remember(context: TimedContext, at: int) -> tuple[()]:
        context.timers.set("first", Deadline.FIRST)
        return ()

    def fire(context: TimedContext, timer: Timer) -> list[object]:
        return [(timer.at, type(timer.at).__name__)]

    flow = Flow("deadlines")
    timed = flow.source("s", event_time=lambda at: at, unit="us").key_by(lambda at: 0)
    timed.process(remember, on_timer=fire).sink("out")
    with FlowTest(flow) as test:
        for at in (10, 30):
            test.send("s", at)
        assert test.outputs() == [(20, "int")]
