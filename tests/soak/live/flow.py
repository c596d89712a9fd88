"""The flow of the live soak: user code that is natural, but not careful.

A record is {"producer": text, "number": int}. One in twenty fails; each makes a reference cycle;
and an operator sees every record under a key of its own, but never writes state.
"""

from __future__ import annotations

import operator
from typing import TypedDict

from driftline import Context, Flow, ReducingState, ValueState

FAILS_ONE_IN = 20


class Record(TypedDict):
    producer: str
    number: int


def fails(number: int) -> bool:
    """Whether the record with this number makes the flow's function raise."""
    return number % FAILS_ONE_IN == 7


def checked(record: Record) -> Record:
    """The record. Raises ValueError for one in twenty."""
    circle: list[object] = [record["producer"] * 20]
    circle.append(circle)
    if fails(record["number"]):
        raise ValueError(f"number {record['number']}")
    return record


def count(record: Record, total: ReducingState[int]) -> tuple[str, int, int]:
    return record["producer"], record["number"], total.add(1)


def look(context: Context, record: Record, seen: ValueState[int]) -> list[int]:
    return [] if seen.get() is None else [record["number"]]


flow = Flow("live soak")
_records = flow.source("records", of=Record).map(checked)
_records.key_by(lambda record: record["producer"]).scan(
    count, ReducingState("total", operator.add), fields=("producer", "number", "count")
).sink("counts")
_records.key_by(lambda record: (record["producer"], record["number"])).process(
    look, ValueState[int]("seen")
).sink("seen")
