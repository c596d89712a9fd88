"""Flows and records of the window benchmark.

A record is `{"key": k, "at": s, "value": v}`; `at` counts seconds since 1970. The event times of
`sales` are out of order by at most `DISORDER_S`. The source of `tumbling` allows this delay, so no
record is late.

    >>> next(sales(1))
    {'key': 'k974', 'at': 600000000.492, 'value': 0}
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from random import Random
from typing import TypedDict

from driftline.engine.flow.flow import Flow
from driftline.engine.operators.aggregates import Sum
from driftline.engine.operators.windows import Tumbling
from driftline.engine.state.managed import MapState, ReducingState

KEYS = 1000

PER_MINUTE = 10
"""Records of each key in a minute of event time, on average."""

DISORDER_S = 0.5
"""An event time is at most this much smaller than the event time of an earlier record."""

_FIRST_S = 600_000_000
"""Event time at which the records begin."""


class Sale(TypedDict):
    """A record."""

    key: str
    at: float
    value: int


def sales(count: int) -> Iterator[Sale]:
    """Yield records, the same in each call."""
    draw = Random("sales").random
    step_s = 60 / (KEYS * PER_MINUTE)
    for number in range(count):
        at = _FIRST_S + round(number * step_s + draw() * DISORDER_S, 3)
        yield {"key": f"k{int(draw() * KEYS)}", "at": at, "value": number % 100}


def minute_of(at: float) -> int:
    """Return the number of the minute of an event time, counted since 1970."""
    return int(at // 60)


def sums_of(records: Iterable[Sale]) -> Counter[tuple[str, int]]:
    """Return the sum of the values of each key and minute."""
    sums: Counter[tuple[str, int]] = Counter()
    for record in records:
        sums[record["key"], minute_of(record["at"])] += record["value"]
    return sums


def tumbling() -> Flow:
    """Return the flow that sums the values of each minute with a window operator."""
    flow = Flow("tumbling")
    keyed = flow.source("sales", event_time="at", max_delay=DISORDER_S).key_by("key")
    keyed.window(Tumbling("1m")).aggregate(total=Sum("value")).sink("rows")
    return flow


def scan() -> Flow:
    """Return the flow that sums each minute with a stateful function, with an output per record."""
    flow = Flow("scan")
    keyed = flow.source("sales").key_by("key")
    keyed.scan(_add, MapState[int, int]("sums")).sink("sums")
    return flow


def _add(sale: Sale, sums: MapState[int, int]) -> tuple[str, int, int]:
    minute = minute_of(sale["at"])
    sums[minute] = total = sums.get(minute, 0) + sale["value"]
    return sale["key"], minute, total


def both() -> Flow:
    """Return a flow with a scan at sink 0, and windows of a second at sink 1.

    Precondition: the records are in the order of their event times.
    """
    flow = Flow("both")
    keyed = flow.source("sales", event_time="at").key_by("key")
    total = ReducingState[int]("total", lambda a, b: a + b)
    keyed.scan(lambda sale, total: total.add(sale["value"]), total).sink("totals")
    keyed.window(Tumbling("1s")).aggregate(total=Sum("value")).sink("rows")
    return flow
