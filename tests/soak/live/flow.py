"""Flow of the live soak: ordinary user code that is not careful.

A record is {"producer": text, "number": int}. One in twenty fails; each makes a reference cycle; an
operator sees each record under its own key, but never writes state.
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
    """Return whether the flow's function raises for this record."""
    return number % FAILS_ONE_IN == 7


def checked(record: Record) -> Record:
    """Return the record; raise ValueError for one in twenty."""
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
