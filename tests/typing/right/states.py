"""States, with declared or inferred types; any number of them."""

from collections.abc import Iterator
from functools import partial
from typing import assert_type

from driftline import Context, Flow, ListState, MapState, ReducingState, Stream, ValueState

Reading = tuple[str, float]


def last(reading: Reading, before: ValueState[float]) -> tuple[str, float, float | None]:
    assert_type(before.get(), float | None)
    assert_type(before.get(0.0), float)
    assert_type(before.get("none"), float | str)
    found = before.get()
    before.set(reading[1])
    return (*reading, found)


def largest(reading: Reading, most: ReducingState[float]) -> float:
    assert_type(most.get(), float | None)
    return most.add(reading[1])


def everything(
    context: Context,
    reading: Reading,
    before: ValueState[tuple[float, int]],
    recent: ListState[float],
    by_hour: MapState[int, list[float]],
    total: ReducingState[float],
    seen: MapState[str, bool],
) -> Iterator[tuple[float, int]]:
    assert_type(by_hour.get(1), list[float] | None)
    assert_type(by_hour.items(), list[tuple[int, list[float]]])
    assert_type(recent[-1:], list[float])
    recent.append(reading[1])
    by_hour.setdefault(len(recent), []).append(total.add(reading[1]))
    seen[reading[0]] = True
    yield before.get((0.0, 0))


def limited(limit: float, reading: Reading, count: ReducingState[int]) -> bool:
    return reading[1] < limit and count.add(1) > 2


def add(one: float, other: float) -> float:
    return one + other


flow = Flow("states")
readings: Stream[Reading] = flow.source("readings", fields=("sensor", "value"))
by_sensor = readings.key_by("sensor")

# The declaration defines the types, or the function does.
by_sensor.scan(last, ValueState[float]("before")).sink("last")
by_sensor.scan(last, ValueState("before")).sink("last-again")

# A reducing state takes a function, an operator or a lambda.
by_sensor.scan(largest, ReducingState("most", max)).sink("largest")
by_sensor.scan(largest, ReducingState("total", lambda one, other: one + other)).sink("sums")

# Lambdas see the types of the declarations.
seen = by_sensor.process(
    lambda context, reading, before, values: [
        (context.key, reading[1], before.get(0), values[-1:])
    ],
    ValueState[int]("before"),
    ListState[float]("values"),
)
seen.sink("seen")

# Any number of states, and none.
found = by_sensor.process(
    everything,
    ValueState("before"),
    ListState("recent"),
    MapState("by-hour"),
    ReducingState("total", add),
    MapState("seen"),
)
assert_type(found, Stream[tuple[float, int]])
found.sink("everything")
by_sensor.scan(lambda reading: reading[1]).sink("values")

# A function with an additional argument.
by_sensor.scan(partial(limited, 3.5), ReducingState[int]("count", max)).sink("limited")
