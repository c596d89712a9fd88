"""Overlapping hopping windows: their rows follow from the definition of panes, and share state."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from functools import reduce
from itertools import groupby
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from driftline import Flow, FlowTest, run_reference
from driftline.engine.operators.aggregates import Aggregate, Count, Reduce
from driftline.engine.operators.sketches import ApproximateCountDistinct, Quantile
from driftline.engine.operators.windows import Hopping
from tests.engine.operators.test_timed import (
    DELAYS,
    LATENESS,
    Oracle,
    Record,
    any_interval,
    by_sink,
    record_lists,
    run_killed,
    seconds,
    window_flow,
)
from tests.engine.operators.test_windows import AGGREGATES, AWKWARD, TEXTS, Plain, folded

S = 1_000_000
"""Microseconds of a second."""

SIZES = st.sampled_from([(15, 5), (11, 4), (12, 11), (9, 1), (20, 12)])
"""Size and distance of windows, in seconds."""


class OfField(Aggregate):
    """Aggregate of a field, without the help of the aggregate."""

    def __init__(self, aggregate: Aggregate, field: str) -> None:
        self.aggregate = aggregate
        self.field = field

    def zero(self) -> Any:
        return self.aggregate.zero()

    def add_at(self, accumulator: Any, element: Any, event_time: int) -> Any:
        return self.aggregate.add_at(accumulator, element[self.field], event_time)

    def merge(self, one: Any, other: Any) -> Any:
        return self.aggregate.merge(one, other)

    def result(self, accumulator: Any) -> Any:
        return self.aggregate.result(accumulator)


def result_of_all(aggregate: Aggregate) -> tuple[Aggregate, Plain]:
    """Return an aggregate, and its result if there were no panes."""
    return aggregate, lambda elements, values: aggregate.result(folded(aggregate, elements))


OF_TEXTS = ("max of texts", "first", "last", "distinct", "collect", "reduce")
OF_NUMBERS = ("count", "sum", "mean", "min", "max", "top")

CHECKED: dict[str, tuple[str, tuple[Aggregate, Plain]]] = {
    **{name: ("text", AGGREGATES[name][::2]) for name in OF_TEXTS},
    **{name: ("number", AGGREGATES[name][::2]) for name in OF_NUMBERS},
    "about": ("text", result_of_all(ApproximateCountDistinct(error=0.25))),
    "median": ("number", result_of_all(Quantile(0.5))),
}
"""Name -> field, aggregate, and its result in plain Python."""


def nested(one: str, other: str) -> str:
    """Combine two elements such that the result shows the order of all calls."""
    return f"({one} {other})"


def expected_rows(oracle: Oracle, size: int, every: int) -> Iterator[dict[str, object]]:
    """Yield the rows that follow from the definition, by end, start and user."""

    def windows(record: Record) -> list[tuple[int, int]]:
        return any_interval(size, every, 0, record["at"])

    members = defaultdict[tuple[int, int, str], list[Record]](list)
    for index, record in enumerate(oracle.records):
        for start, end in windows(record):
            if not oracle.is_late(index, end):
                members[end, start, record["user"]].append(record)
    for (end, start, user), found in sorted(members.items()):
        by_pane = sorted(found, key=windows)
        row: dict[str, object] = {"key": user, "start": start, "end": end}
        for name, (field, (_, plain)) in CHECKED.items():
            elements = [(record["at"], record[field]) for record in by_pane]
            row[name] = plain(elements, [value for _, value in elements])
        panes = [
            reduce(nested, [record["text"] for record in pane])
            for _, pane in groupby(by_pane, windows)
        ]
        yield row | {"nested": reduce(nested, panes)}


@st.composite
def values(draw: st.DrawFn) -> list[Record]:
    """Draw records with a text and a number."""
    numbers = st.integers(-9, 9) | AWKWARD
    return [
        record | {"text": draw(TEXTS), "number": draw(numbers)} for record in draw(record_lists(30))
    ]


@settings(max_examples=12)
@given(
    records=values(),
    sizes=SIZES,
    max_delay=DELAYS,
    lateness=LATENESS,
    nodes=st.integers(1, 3),
    who=st.sampled_from(["node-0", "front-0", "master"]),
    seed=st.integers(0, 1000),
)
def test_aggregates_take_elements_pane_by_pane(
    records: list[Record],
    sizes: tuple[int, int],
    max_delay: int,
    lateness: int,
    nodes: int,
    who: str,
    seed: int,
) -> None:
    size, every = sizes
    aggregates: dict[str, Any] = {
        name: OfField(each, field) for name, (field, (each, _)) in CHECKED.items()
    }
    flow = Flow("values")
    source = flow.source("values", event_time="at", max_delay=max_delay)
    windows = source.key_by("user").window(Hopping(size, every=every), lateness=lateness)
    windows.aggregate(nested=OfField(Reduce(nested), "text"), **aggregates).sink("rows")
    windows.late.sink("late")
    expected = by_sink(flow, run_reference(flow, [records]))
    rows: list[Any] = [item.value for item in expected["rows"]]
    seen = [row | {"start": seconds(row["start"]), "end": seconds(row["end"])} for row in rows]
    seen.sort(key=lambda row: (row["end"], row["start"], row["key"]))
    assert seen == list(expected_rows(Oracle(records, max_delay, lateness), size, every))
    kills = {len(records) // 3: "node-0", 2 * len(records) // 3: who}
    assert run_killed(flow, records, nodes, kills, seed) == expected


@settings(max_examples=20)
@given(records=record_lists(30), sizes=SIZES, max_delay=DELAYS, lateness=LATENESS)
def test_state_contains_only_panes_that_open_windows_need(
    records: list[Record], sizes: tuple[int, int], max_delay: int, lateness: int
) -> None:
    size, every = sizes
    flow, name = window_flow(Hopping(size, every=every), max_delay, lateness)
    late = next(vertex.name for vertex in flow.vertices if vertex.kind == "late")
    oracle = Oracle(records, max_delay, lateness)
    with FlowTest(flow) as test:
        for index, record in enumerate(records):
            test.send(record)
            needed = defaultdict[tuple[tuple[int, int], ...], list[int]](list)
            timers: dict[str, int] = {}
            for before in records[: index + 1]:
                found = any_interval(size, every, 0, before["at"])
                if before["user"] != record["user"] or oracle.is_late(before["id"], found[-1][1]):
                    continue
                is_open = [start for start, end in found if not oracle.is_late(index, end)]
                timers |= {str(start * S): (start + size + lateness) * S for start in is_open}
                if is_open:
                    needed[tuple(found)].append(before["id"])
            for operator in name, late:
                state: Any = test.state(operator, record["user"])
                assert state["(timers)"] == timers
                assert len(state["panes"]) == len(needed)
            state = test.state(name, record["user"])
            kept = [ids for _, (_, _, ids) in state["panes"].values()]
            assert sorted(kept) == sorted(map(tuple, needed.values()))
        test.end()
        for user in "abc":
            assert test.state(name, user) == {"panes": {}, "(timers)": {}}


def test_element_is_added_once() -> None:
    added: list[int] = []

    class NotingAggregate(Count):
        def add(self, accumulator: int, element: Any) -> int:
            added.append(element["id"])
            return super().add(accumulator, element)

    flow = Flow("once")
    windows = flow.source("in", event_time="at").key_by("user").window(Hopping(60, every=1))
    windows.aggregate(count=NotingAggregate()).sink()
    with FlowTest(flow) as test:
        for number in range(100):
            test.send({"user": "a", "at": number, "id": number})
        assert added == list(range(100))
        test.end()
        rows: list[Any] = test.outputs()
    counts = [row["count"] for row in rows]
    assert counts == [*range(1, 60), *[60] * 41, *range(59, 0, -1)]


@settings(max_examples=15)
@given(records=record_lists(), sizes=SIZES, max_delay=DELAYS, lateness=LATENESS)
def test_updates_have_the_same_last_rows(
    records: list[Record], sizes: tuple[int, int], max_delay: int, lateness: int
) -> None:
    found = []
    for emit in ("final", "updates"):
        flow, _ = window_flow(Hopping(sizes[0], every=sizes[1]), max_delay, lateness, emit)
        rows: list[Any] = [item.value for item in run_reference(flow, [records]) if item.sink == 0]
        last = [row for row in rows if not row.pop("preliminary", False)]
        found.append([row | {"ids": sorted(row["ids"])} for row in last])
    assert found[0] == found[1]
