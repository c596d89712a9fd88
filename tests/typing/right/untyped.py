"""An untyped source: its records accept any operation, and types begin behind it."""

import operator
from typing import Any, assert_type

from driftline import Flow, ReducingState, Stream


def number(record: dict[str, str]) -> int:
    return int(record["number"])


def total(value: int, sum_: ReducingState[int]) -> int:
    return sum_.add(value)


flow = Flow("untyped")
records = flow.source("records")
assert_type(records, Stream[Any])
records.filter(lambda record: record["a"].b > 3).map(lambda record: record + 1).sink("anything")
assert_type(records.map(number), Stream[int])
totals = (
    records.map(number)
    .key_by(lambda value: value % 2)
    .scan(total, ReducingState("sum", operator.add))
)
assert_type(totals, Stream[int])
totals.sink("totals")
named: Stream[tuple[str, int] | None] = flow.source("optional")
named.map(lambda pair: pair and pair[1]).sink("numbers")
