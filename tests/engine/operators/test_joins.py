"""Joins of two streams, compared with their definitions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driftline import Flow, FlowError, FlowTest, Sum, Tumbling, run_reference

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
