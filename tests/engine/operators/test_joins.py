"""Joins of two streams, compared with their definitions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import zip_longest
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driftline import Count, Flow, FlowError, FlowTest, Sum, Tumbling, run, run_reference
from driftline.engine.event_time import to_microseconds
from driftline.engine.operators.windowed import Row
from driftline.engine.reference import interpret

Record = dict[str, Any]

SIZE = 10


def records(side: str) -> st.SearchStrategy[list[Record]]:
    """Records with event times in any order, of two keys."""
    drawn = st.lists(st.tuples(st.sampled_from("ab"), st.integers(-15, 25)), max_size=8)
    return drawn.map(
        lambda pairs: [
            {"key": key, "at": at, "id": f"{side}{number}"}
            for number, (key, at) in enumerate(pairs)
        ]
    )


@given(records("l"), records("r"), st.sampled_from(["inner", "left", "right", "outer"]))
def test_join_of_windows_pairs_the_elements_of_the_same_window(
    lefts: list[Record], rights: list[Record], how: str
) -> None:
    flow = Flow("windows")
    left, right = (flow.source(name, event_time="at", max_delay="1h") for name in ("l", "r"))
    left.join(right, on="key", window=Tumbling(SIZE), how=how).sink()
    expected: list[tuple[Record | None, Record | None]] = []
    for one in lefts:
        mine = [other for other in rights if same_window(one, other)]
        expected += [(one, other) for other in mine]
        if not mine and how in ("left", "outer"):
            expected.append((one, None))
    for other in rights:
        if how in ("right", "outer") and not any(same_window(one, other) for one in lefts):
            expected.append((None, other))
    found = [item.value for item in run_reference(flow, {"l": lefts, "r": rights})]
    assert sorted(found, key=str) == sorted(expected, key=str)


def same_window(one: Record, other: Record) -> bool:
    return bool(one["key"] == other["key"] and one["at"] // SIZE == other["at"] // SIZE)


def names_of_rules(order: Record, rules: Mapping[str, Record]) -> list[tuple[str, int]]:
    return [(rule["name"], order["id"]) for rule in rules.values() if order["id"] % rule["n"] == 0]


def rules_flow() -> Flow:
    flow = Flow("rules")
    orders, rules = flow.source("orders"), flow.source("rules")
    orders.with_broadcast(rules, names_of_rules, on="name", copies=5).sink()
    return flow


def test_broadcast_table_contains_the_latest_rows_before_an_element_on_every_node() -> None:
    rules = {1: ("odd", 1), 4: ("three", 3), 7: ("odd", 2)}
    expected, table = [], dict[str, int]()
    with FlowTest(rules_flow(), nodes=3) as test:
        for number in range(12):
            if number in rules:
                name, n = rules[number]
                table[name] = n
                test.send("rules", {"name": name, "n": n})
            if number in (5, 9):
                test.kill("node-1")
            test.send("orders", {"id": number})
            expected += [(name, number) for name in sorted(table) if number % table[name] == 0]
        assert test.outputs() == expected


def test_broadcast_table_is_read_only() -> None:
    flow = Flow("rules")
    orders, rules = flow.source("orders"), flow.source("rules")
    orders.with_broadcast(rules, lambda order, table: [table.clear()], on="name").sink()  # type: ignore[attr-defined]
    [failure] = run_reference(flow, [[{"id": 1}], []], dead_letters=True)
    assert "'mappingproxy' object has no attribute 'clear'" in str(failure.value)


def test_broadcast_row_without_its_key_is_one_dead_letter() -> None:
    row = {"n": 1}
    with FlowTest(rules_flow(), nodes=3, dead_letters=True) as test:
        test.send("rules", row)
        [failure] = test.failures
    assert failure.record == row


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "give either within="),
        ({"within": (0, 1), "window": Tumbling(1)}, "give either within="),
        ({"window": Tumbling(1), "how": "full"}, "how is 'full'"),
        ({"within": (1, 0)}, "the first is larger"),
    ],
)
def test_join_with_wrong_arguments_is_refused(arguments: dict[str, Any], message: str) -> None:
    flow = Flow("wrong")
    one, other = flow.source("one"), flow.source("other")
    with pytest.raises(FlowError, match=message):
        one.join(other, on="key", **arguments)


def rate(at: int, rate: float) -> Record:
    return {"currency": "EUR", "at": at, "rate": rate}


def sale(at: int) -> Record:
    return {"currency": "EUR", "at": at, "price": 5}


def test_row_of_a_window_is_joined_as_of_its_end() -> None:
    flow = Flow("rates")
    events = flow.source("events", event_time="at")
    sales, rates = events.split(lambda event: "price" in event)
    totals = sales.key_by("currency").window(Tumbling("10s")).aggregate(total=Sum("price"))
    pairs = totals.as_of(rates, on=("key", "currency"))
    pairs.map(lambda pair: (pair[0]["total"], pair[1] and pair[1]["rate"])).sink()
    events_given = [
        rate(1, 1.0),
        sale(2),
        rate(30, 2.0),  # ends the window of the sale
        rate(31, 3.0),
        sale(32),
        sale(33),
        rate(40, 4.0),  # at the end of their window, which does not contain it
    ]
    assert [item.value for item in run_reference(flow, [events_given])] == [(5, 1.0), (10, 3.0)]
    with FlowTest(flow) as test:
        for event in events_given:
            test.send(event)
        test.kill("node-0")
        assert test.outputs() == [(5, 1.0), (10, 3.0)]


def test_windows_after_windows_and_joins_lose_nothing() -> None:
    """Their watermark lags behind by what rows and elements without a partner wait for."""
    flow = Flow("hours")
    orders = flow.source("orders", event_time="at")
    payments = flow.source("payments", event_time="at")
    minutes = orders.key_by("key").window(Tumbling(60), lateness=45).aggregate(n=Count())
    minutes.key_by("key").window(Tumbling(600)).aggregate(n=Sum("n")).sink("all")
    pairs = orders.join(payments, on="id", within=(-100, 300), how="left")
    by_key = pairs.key_by(lambda pair: pair[0]["key"]).window(Tumbling(600))
    by_key.aggregate(unpaid=Sum(lambda pair: pair[1] is None)).sink("unpaid")
    orders_given = [{"id": n, "key": "ab"[n % 2], "at": 10 * n} for n in range(400)]
    paid = [{"id": n, "at": 10 * n + 290} for n in range(0, 400, 3)]
    expected = Counter(("ab"[n % 2], n // 60) for n in range(400))
    unpaid = Counter(("ab"[n % 2], n // 60) for n in range(400) if n % 3)
    with FlowTest(flow, nodes=3) as test:
        for order, payment in zip_longest(orders_given, paid):
            test.send("orders", order)
            if payment:
                test.send("payments", payment)
        test.kill("node-1")
        test.end()
        for sink, counts in ("all", expected), ("unpaid", unpaid):
            found = Counter[tuple[str, int]]()
            for row in cast(list[Row], test.outputs(sink)):
                start = to_microseconds(row["start"]) // 600_000_000
                found[row["key"], start] += row["n" if sink == "all" else sink]
            assert found == counts


def test_pair_has_the_later_event_time_whichever_element_arrives_first() -> None:
    flow = Flow("pairs")
    one, other = flow.source("one", event_time="at"), flow.source("other", event_time="at")
    pairs = one.join(other, on="key", within=(-20, 20))
    pairs.key_by(lambda _: "all").window(Tumbling(10)).aggregate(n=Count()).sink()
    early, late = {"key": "a", "at": 8}, {"key": "a", "at": 13}
    for inputs in ([early], [late]), ([late], [early]):
        [row] = [cast(Row, item.value) for item in run_reference(flow, inputs)]
        assert row["start"] == "1970-01-01T00:00:10Z"
        with FlowTest(flow) as test:
            for name, records in zip(("one", "other"), inputs, strict=True):
                test.send(name, *records)
            test.end()
            assert test.outputs() == [row]


def test_elements_that_may_miss_partners_count_as_late() -> None:
    flow = Flow("late")
    one, other = flow.source("one", event_time="at"), flow.source("other", event_time="at")
    one.join(other, on="key", within=(-5, 5)).sink("pairs")
    one.as_of(other, on="key").sink("prices")
    ones = [{"key": "a", "at": at} for at in (1, 50, 30, 60)]
    others = [{"key": "a", "at": at} for at in (2, 49, 61, 62)]
    summary = run(flow, {"one": ones, "other": others}, [], nodes=2)
    late: Counter[str] = Counter()
    list(interpret(flow, [enumerate(ones, 1), enumerate(others, 1)], late=late))
    assert summary.late_elements == late.total() == 2  # 30, for each of the joins
