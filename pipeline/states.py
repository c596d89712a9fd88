"""State as a DataFrame: what a savepoint holds, to be asked by SQL; and a savepoint of such rows.

One row for each slot of each key: a map's entry, a list's position, a value. Keys, slots and
values are JSON, so that SQL can look into them (`from_json`, `get_json_object`, ...):

    group int, operator string, state string, key string, slot string, value string

Bytes are written as {"bytes": hex}; the slot of a single value is null.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from engine.errors import PayloadError
from engine.flow import Flow, Vertex
from engine.keygroups import group_of
from engine.savepoint import Savepoint, begin, complete, groups_of, write_segment
from engine.snapshots import as_segment, read_segment
from engine.state import MISSING, StateTable
from pipeline.failures import explained
from pipeline.rows import PARTITIONS, Batches

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = "group int, operator string, state string, key string, slot string, value string"

_ARROW = pa.schema(
    [
        ("group", pa.int32()),
        *((name, pa.string()) for name in ("operator", "state", "key", "slot", "value")),
    ]
)

ROWS_AT_ONCE = 10_000

Row = tuple[int, str, str, str, str, str]


def read_state(spark: SparkSession, savepoint: Savepoint, flow: Flow) -> DataFrame:
    """The rows of a savepoint, read in parallel. Raises StateMismatch; jobs, SnapshotDamaged."""
    savepoint.check_flow(flow)
    task = _ReadState(savepoint, flow)
    numbers = spark.range(0, flow.groups, 1, 4 * spark.sparkContext.defaultParallelism)

    def work(batches: Batches) -> Batches:
        return task.read(batches)

    return numbers.mapInArrow(work, SCHEMA)


def write_state(rows: DataFrame, flow: Flow, time: int, path: Path) -> Savepoint:
    """A savepoint of rows as `read_state` gives them, in any order; `group` is not looked at.

    Raises PayloadError for what is no state of the flow, and what `engine.savepoint` raises.
    """
    begin(path)
    task = _WriteState(flow, path)

    def place(batches: Batches) -> Batches:
        return task.place(batches)

    def work(batches: Batches) -> Batches:
        return task.write(batches)

    with explained():
        placed = rows.select(*_ARROW.names).mapInArrow(place, SCHEMA)
        placed = placed.repartitionById(min(PARTITIONS, flow.groups), "group")
        placed.sortWithinPartitions("group", "operator").mapInArrow(work, SCHEMA).count()
    return complete(path, flow, time)


@dataclass(frozen=True, slots=True)
class _ReadState:
    savepoint: Savepoint
    flow: Flow

    def read(self, batches: Batches) -> Batches:
        pending: list[Row] = []
        for batch in batches:
            for group in batch.column(0).to_pylist():
                for row in self._rows(group):
                    pending.append(row)
                    if len(pending) >= ROWS_AT_ONCE:
                        yield _batch(pending)
                        pending = []
        if pending:
            yield _batch(pending)

    def _rows(self, group: int) -> Iterator[Row]:
        for vertex in self.flow.vertices:
            if vertex.keyed and group in groups_of(self.savepoint, vertex.number):
                segment = self.savepoint.segment(group, vertex.number)
                for operator, state, rows in read_segment(segment):
                    for key, slot, value in rows:
                        yield group, operator, state, to_json(key), to_json(slot), to_json(value)


@dataclass(frozen=True, slots=True)
class _WriteState:
    flow: Flow
    path: Path

    def place(self, batches: Batches) -> Batches:
        """Find out the key group of each row."""
        for batch in batches:
            columns = [column.to_pylist() for column in batch.columns]
            columns[0] = [group_of(from_json(key), self.flow.groups) for key in columns[3]]
            yield pa.record_batch(
                [pa.array(c, f.type) for c, f in zip(columns, _ARROW, strict=True)], schema=_ARROW
            )

    def write(self, batches: Batches) -> Batches:
        """Write the segments of key groups; gives nothing."""
        vertices = {vertex.name: vertex for vertex in self.flow.vertices if vertex.keyed}
        for (operator, group), rows in groupby(_rows(batches), key=itemgetter(1, 0)):
            if operator not in vertices:
                raise PayloadError(f"flow {self.flow.name!r} has no keyed operator {operator!r}")
            vertex = vertices[operator]
            table = _table(vertex, rows)
            write_segment(self.path, group, vertex.number, as_segment(operator, table, table))
        yield from ()


def _rows(batches: Batches) -> Iterator[Row]:
    for batch in batches:
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _table(vertex: Vertex, rows: Iterator[Row]) -> StateTable:
    """The states that rows describe. Raises PayloadError."""
    table = StateTable(vertex.states, [])
    places = {state.name: index for index, state in enumerate(vertex.states)}
    for _, operator, state, key, slot, value in rows:
        if state not in places:
            raise PayloadError(f"operator {operator!r} has no state {state!r}")
        table.states(from_json(key))[places[state]].assign(from_json(slot), from_json(value))
    for found in (one for key in table for one in table.states(key)):
        if any(value is MISSING for _, value in found.slots()):
            raise PayloadError(f"state {found.name!r} of key {found.key!r} has gaps in its list")
    return table


def _batch(rows: list[Row]) -> pa.RecordBatch:
    arrays = [
        pa.array(column, field.type)
        for column, field in zip(zip(*rows, strict=True), _ARROW, strict=True)
    ]
    return pa.record_batch(arrays, schema=_ARROW)


def to_json(value: object) -> str:
    """A value of a state as JSON."""
    return json.dumps(value, ensure_ascii=False, default=_bytes)


def from_json(text: str) -> object:
    """What `to_json` was given. Raises PayloadError for what can be no state."""
    try:
        return _immutable(json.loads(text))
    except (ValueError, TypeError) as error:
        raise PayloadError(f"{text!r:.100} is no value of a state: {error}") from None


def _bytes(value: object) -> object:
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    raise TypeError(f"{value!r} cannot be written as JSON")


def _immutable(value: object) -> object:
    if isinstance(value, list):
        return tuple(map(_immutable, value))
    if isinstance(value, dict):
        return bytes.fromhex(value["bytes"])
    return value
