"""Outlines: each difference of two versions of a flow is a sentence that names the operator."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from driftline import (
    Aggregate,
    Count,
    Flow,
    ListState,
    MapState,
    Max,
    ReducingState,
    Session,
    Sum,
    Tumbling,
    ValueState,
)
from driftline.engine.flow.outline import Outline, make_outline
from driftline.engine.flow.plan import make_plan


def made(build: Callable[[Flow], None], name: str = "flow", groups: int = 128) -> Outline:
    flow = Flow(name, groups)
    build(flow)
    return make_outline(flow)


def first(x: object) -> object:
    return x


def plain(flow: Flow) -> None:
    lines = flow.source("lines")
    words = lines.flat_map(str.split)
    words.key_by(0).scan(
        lambda *x: x, ValueState("last"), ReducingState("n", max), name="count"
    ).sink("counts")


def states(flow: Flow) -> None:
    words = flow.source("lines").flat_map(str.split)
    words.key_by(0).scan(lambda *x: x, ListState("last"), MapState("seen"), name="count").sink(
        "counts"
    )


def names(flow: Flow) -> None:
    words = flow.source("texts").flat_map(str.split)
    words.key_by(0).process(
        lambda *x: [x], ReducingState("n", max), ValueState("last"), name="count"
    ).sink("numbers")


def two(flow: Flow) -> None:
    lines, others = flow.source("lines"), flow.source("others")
    lines.map(first, name="a").union(others.map(first, name="b"), name="all").sink("out")


def turned(flow: Flow) -> None:
    others, lines = flow.source("others"), flow.source("lines")
    lines.map(first, name="b").union(others.map(first, name="a"), name="all").sink("out")


def straight(flow: Flow) -> None:
    a, b = flow.source("a"), flow.source("b")
    a.sink("of a")
    b.sink("of b")


def turned_round(flow: Flow) -> None:
    b, a = flow.source("b"), flow.source("a")
    a.sink("of a")
    b.sink("of b")


CASES = [
    (plain, plain, []),
    (plain, states, [
        "operator 'count' lacks its state 'n' (ReducingState)",
        "operator 'count' has a ListState 'last' instead of a ValueState",
        "operator 'count' has a new state 'seen' (MapState)",
    ]),
    (plain, names, [
        "source 'lines' (source) is gone", "source 'texts' (source) is new",
        "operator 'counts' (sink) is gone", "operator 'numbers' (sink) is new",
        "operator 'count' is a process instead of a scan",
        "operator 'count' has its states in another order: 'n', 'last'",
        "operator 'flat_map-1' takes its input from 'texts' instead of 'lines'",
    ]),
    (two, turned, [
        "operator 'a' takes its input from 'others' instead of 'lines'",
        "operator 'b' takes its input from 'lines' instead of 'others'",
        "operator 'all' takes its input from 'b', 'a' instead of 'a', 'b'",
    ]),
    (straight, turned_round, [
        "the operators stand in another order: 'b', 'a', 'of a', 'of b'",
    ]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("one", "other", "expected_text"),
    CASES,
    ids=[f"{a.__name__} {b.__name__}" for a, b, _ in CASES],
)
def test_differences_lists_each_change_of_a_flow(
    one: Callable[[Flow], None], other: Callable[[Flow], None], expected_text: list[str]
) -> None:
    assert sorted(made(other).differences(made(one))) == sorted(expected_text)


def test_differences_lists_the_name_and_the_key_groups() -> None:
    assert made(plain, "b", 64).differences(made(plain, "a")) == [
        "the flow is named 'b' instead of 'a'",
        "the flow has 64 key groups instead of 128",
    ]


@pytest.mark.parametrize(
    ("windows", "aggregates"),
    [
        (Tumbling("1m"), {"total": Sum("n"), "clicks": Count()}),
        (Tumbling("1m"), {"clicks": Count(), "total": Max("n")}),
        (Tumbling("1m"), {"clicks": Count()}),
        (Session("1m"), {"clicks": Count(), "total": Sum("n")}),
    ],
)
def test_windows_with_other_aggregates_have_another_state(
    windows: Tumbling | Session, aggregates: dict[str, Aggregate]
) -> None:
    def counted(windows: Tumbling | Session, aggregates: dict[str, Aggregate]) -> Flow:
        flow = Flow("flow")
        keyed = flow.source("in", event_time="at").key_by("user")
        keyed.window(windows).aggregate(emit="final", name="counts", **aggregates).sink("out")
        return flow

    before = counted(Tumbling("1m"), {"clicks": Count(), "total": Sum("n")})
    after = counted(windows, aggregates)
    text, of_timers = make_outline(after).differences(make_outline(before))
    assert "'(timers)'" in of_timers
    assert text.startswith("operator 'counts' has a MapState of ")
    assert (
        "'windows' instead of a MapState of Tumbling 60000000 0 (clicks=Count, total=Sum)" in text
    )
    assert make_plan(after).identity() != make_plan(before).identity()
