"""State as a DataFrame: the rows of a savepoint for SQL queries, and a savepoint of such rows.

There is one row for each slot of each key: an entry of a map, a position of a list, a single value.
Keys, slots and values are JSON, which SQL can read (`from_json`, `get_json_object`, ...):

    group int, operator string, state string, key string, slot string, value string

Bytes are {"bytes": hex}; the slot of a single value is null. A mutable value (a list, a dict) is
{"value": ...}; in it tuples are {"tuple": [...]}.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from driftline.engine.errors import PayloadError
from driftline.engine.flow.flow import Flow, Vertex
from driftline.engine.keygroups import group_of
from driftline.engine.snapshots.merging import as_segment, read_segment
from driftline.engine.snapshots.savepoint import Savepoint, begin, complete, write_segment
from driftline.engine.state.managed import MISSING
from driftline.engine.state.serialised import serialise
from driftline.engine.state.table import StateTable
from driftline.engine.state.values import Frozen, frozen, thawed
from driftline.pipeline import PARTITIONS
from driftline.pipeline.running.runner import ship
from driftline.pipeline.spark.arrow import Batches, apply, as_batch, portions, read_numbers
from driftline.pipeline.spark.failures import explained

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = "group int, operator string, state string, key string, slot string, value string"

_ARROW = pa.schema(
    [
        ("group", pa.int32()),
        *((name, pa.string()) for name in ("operator", "state", "key", "slot", "value")),
    ]
)
COLUMNS = tuple(_ARROW.names)

ROWS_AT_ONCE = 10_000

Row = tuple[int, str, str, str, str, str]


def read_state(spark: SparkSession, savepoint: Savepoint, flow: Flow) -> DataFrame:
    """The rows of a savepoint, read in parallel. Raises StateMismatch for one of another flow.

    Jobs over the rows raise SnapshotDamaged if a file of the savepoint is damaged.
    """
    savepoint = savepoint.same_flow(flow)
    ship(flow)
    groups = spark.range(0, flow.groups, 1, 4 * spark.sparkContext.defaultParallelism)
    return apply(groups, _ReadState(savepoint, flow), SCHEMA)


def write_state(rows: DataFrame, flow: Flow, time: int, path: Path) -> Savepoint:
    """Write a savepoint as of `time`. `rows`: like those of `read_state`, in any order.

    The column `group` is ignored: keys determine their groups. Raises PayloadError for rows that
    are no state of the flow, and the errors of `engine.snapshots.savepoint`.
    """
    begin(path)
    ship(flow)
    with explained():
        placed = apply(rows.select(*COLUMNS), _Place(flow.groups), SCHEMA)
        placed = placed.repartitionById(min(PARTITIONS, flow.groups), "group")
        placed = placed.sortWithinPartitions("group", "operator")
        apply(placed, _WriteState(flow, path), SCHEMA).count()
    return complete(path, flow, time)


@dataclass(frozen=True, slots=True)
class _ReadState:
    """Reads the rows of key groups. Takes rows whose first column is the number of a key group."""

    savepoint: Savepoint
    flow: Flow

    def __call__(self, batches: Batches) -> Batches:
        rows = chain.from_iterable(map(self._rows, read_numbers(batches)))
        for portion in portions(rows, lambda _: 1, ROWS_AT_ONCE):
            yield as_batch(portion, _ARROW)

    def _rows(self, group: int) -> Iterator[Row]:
        for operator, state, rows in read_segment(self.savepoint.segments(self.flow, group)):
            for key, slot, value in rows:
                yield group, operator, state, to_json(key), to_json(slot), to_json(value)


@dataclass(frozen=True, slots=True)
class _Place:
    """Computes the key group of each row."""

    groups: int

    def __call__(self, batches: Batches) -> Batches:
        for batch in batches:
            groups = [group_of(from_json(key), self.groups) for key in batch["key"].to_pylist()]
            yield batch.set_column(0, _ARROW.field(0), pa.array(groups, pa.int32()))


@dataclass(frozen=True, slots=True)
class _WriteState:
    """Writes the segments of key groups. Takes rows ordered by (group, operator); gives no rows."""

    flow: Flow
    path: Path

    def __call__(self, batches: Batches) -> Batches:
        vertices = {vertex.name: vertex for vertex in self.flow.vertices if vertex.keyed}
        for (operator, group), rows in groupby(_rows(batches), key=itemgetter(1, 0)):
            if operator not in vertices:
                raise PayloadError(f"flow {self.flow.name!r} has no keyed operator {operator!r}")
            vertex = vertices[operator]
            table = _table(vertex, rows)
            write_segment(self.path, group, operator, as_segment(operator, table, table))
        yield from ()


def _rows(batches: Batches) -> Iterator[Row]:
    for batch in batches:
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _table(vertex: Vertex, rows: Iterator[Row]) -> StateTable:
    """The states of an operator that rows describe.

    Raises PayloadError for a state that the operator does not have, and for gaps in a list.
    """
    table = StateTable(vertex.states, [])
    places = {state.name: index for index, state in enumerate(vertex.states)}
    for _, operator, state, key, slot, value in rows:
        if state not in places:
            raise PayloadError(f"operator {operator!r} has no state {state!r}")
        content = from_json(value)
        if isinstance(content, Frozen):
            serialise(table)
        table.states(from_json(key))[places[state]].assign(from_json(slot), content)
    for filled in (of_key for key in table for of_key in table.states(key)):
        if any(value is MISSING for _, value in filled.slots()):
            raise PayloadError(f"state {filled.name!r} of key {filled.key!r} has gaps in its list")
    return table


def to_json(value: object) -> str:
    """A value of a state as JSON; a mutable one as {"value": ...}."""
    if isinstance(value, Frozen):
        return json.dumps({"value": _to_tree(thawed(value))}, ensure_ascii=False)
    return json.dumps(value, ensure_ascii=False, default=_bytes)


def from_json(text: str) -> object:
    """The value that `to_json` was called with. Raises PayloadError for other texts."""
    try:
        tree = json.loads(text)
        if isinstance(tree, dict) and tree.keys() == {"value"}:
            return frozen(_from_tree(tree["value"]))
        return _immutable(tree)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
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


_SPECIAL = ({"bytes"}, {"tuple"}, {"items"})


def _to_tree(value: object) -> object:
    """A value as JSON; a type that JSON lacks is an object whose only key names the type."""
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    if isinstance(value, tuple):
        return {"tuple": list(map(_to_tree, value))}
    if isinstance(value, list):
        return list(map(_to_tree, value))
    if isinstance(value, dict):
        if all(isinstance(key, str) for key in value) and set(value) not in _SPECIAL:
            return {key: _to_tree(inner) for key, inner in value.items()}
        return {"items": [[_to_tree(key), _to_tree(inner)] for key, inner in value.items()]}
    return value


def _from_tree(tree: object) -> object:
    match tree:
        case {"bytes": str(text), **rest} if not rest:
            return bytes.fromhex(text)
        case {"tuple": list(values), **rest} if not rest:
            return tuple(map(_from_tree, values))
        case {"items": list(pairs), **rest} if not rest:
            return {_from_tree(key): _from_tree(inner) for key, inner in pairs}
        case dict():
            return {key: _from_tree(inner) for key, inner in tree.items()}
        case list():
            return list(map(_from_tree, tree))
    return tree
