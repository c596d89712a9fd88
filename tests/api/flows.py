"""Flows that tests call from Python; other processes can import those with a name."""

from __future__ import annotations

import json
import operator
from collections.abc import Iterator
from pathlib import Path

from driftline import Context, Flow, Item, ListState, MapState, ReducingState
from driftline.connectors.sinks.lines import JsonLines

Order = dict[str, object]


def running_totals(name: str = "totals") -> Flow:
    """Return a flow of lambdas, as in a notebook: {"who", "price"} -> (who, total so far)."""
    flow = Flow(name)
    flow.source("orders").key_by("who").scan(
        lambda order, spent: (order["who"], spent.add(order["price"])),
        ReducingState[int]("spent", operator.add),
        name="total",
    ).sink("totals")
    return flow


def _pair(
    context: Context,
    element: tuple[str, object, int],
    waiting: MapState[str, int],
    numbers: ListState[int],
) -> Iterator[tuple[object, ...]]:
    """Pair each order with the latest payment and vice versa; the result depends on the order."""
    kind, key, number = element
    other = "payment" if kind == "order" else "order"
    numbers.append(number)
    if other in waiting:
        yield key, kind, number, waiting.pop(other), len(numbers)
    else:
        waiting[kind] = number
    if number % 5 == 0:
        yield key, "seen", tuple(numbers)


def order_payment_flow() -> Flow:
    """Return a flow with two sources that meet at a key, two stages and two sinks."""
    flow = Flow("matching")
    orders = flow.source("orders").map(lambda r: ("order", r["id"], r["n"]), name="order")
    payments = flow.source("payments").map(lambda r: ("payment", r["id"], r["n"]), name="payment")
    pairs = (
        orders.union(payments)
        .key_by(1)
        .process(_pair, MapState[str, int]("waiting"), ListState[int]("all"), name="pair")
    )
    pairs.sink("matched")
    pairs.map(lambda pair: (str(pair[1]), 1)).key_by(0).scan(
        lambda one, count: (one[0], count.add(one[1])),
        ReducingState[int]("count", operator.add),
        name="count",
    ).sink("counts")
    return flow


def division_flow() -> Flow:
    """Return a flow that divides by a number, which may be 0."""
    flow = Flow("failing")
    flow.source("numbers").map(_divide, name="divide").sink("quotients")
    return flow


def _divide(number: int) -> int:
    return 12 // number


IMPORTABLE = running_totals("importable")

FAILING = division_flow()

ORDERS: list[object] = [{"who": "abc"[i * i % 3], "price": i} for i in range(40)]


def as_lines(flow: Flow, items: list[Item]) -> list[str]:
    """Return the output lines of a run, merged by label, as in a directory."""
    return [JsonLines(flow).format(item) for item in items]


def lines_in(directory: Path) -> list[str]:
    """Return all lines of a directory, merged by label."""
    found = [line for file in directory.glob("*.jsonl") for line in file.read_text().splitlines()]
    return sorted(found, key=lambda line: list(json.loads(line)["t"]))
