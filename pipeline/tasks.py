"""Spark tasks as functions from Arrow batches to Arrow batches, with helpers and error handling.

The driver raises the errors of tasks again, with their types.

Rows are the messages between the tasks of a batch run. A row is a frame: the elements of one root
that go from one task to one port of one partition, in columns. So Spark moves and sorts a few rows
per input record instead of one per element; it sorts rows by their root, (time, front).

The column `to` is a port, or a kind of result: OUTPUT, a blob of outputs as in bundles; SET_ASIDE,
a record that could not be read; READ, the number of records read, as `time`; LAST, the time of the
last record; STATE, a key with a wrong state; EVENT_TIME, the largest event time of a source, as
`time`, with its number and status as `front`. Results pass through all later tasks, up to the task
that writes or compares them.

A row to a port whose `front` is negative has event times of records of the front -1 - `front`. It
precedes the elements from its `time` on.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from driftline.engine import errors
from driftline.engine.errors import DriftlineError, Unavailable
from driftline.engine.labels import Label
from driftline.engine.operators.steps import Values
from driftline.engine.wire.codec import decode_rows, encode_rows, pack, unpack
from driftline.engine.wire.label_columns import encode_labels

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


T = TypeVar("T")

Batches = Iterator[pa.RecordBatch]
Task = Callable[[Batches], Batches]

SCHEMA = "to int, partition int, time long, front int, payload binary"

OUTPUT, SET_ASIDE, READ, LAST, STATE, EVENT_TIME = -1, -2, -3, -4, -5, -6

Row = tuple[int, int, int, int, bytes]
"""(port or kind of result, partition, time, front, payload)"""

_ARROW = pa.schema(
    [
        ("to", pa.int32()),
        ("partition", pa.int32()),
        ("time", pa.int64()),
        ("front", pa.int32()),
        ("payload", pa.binary()),
    ]
)

BATCH_BYTES = 2**22
ROW_BYTES = 2**12
"""The cost of a row besides its payload; limits a batch to some thousand rows."""

_RAISED = re.compile(
    r"^(?:[\w.]+\.)?(\w+): (.*?)(?=\n\n|\n\tat |\n *During handling|\Z)", re.M | re.S
)


def apply(rows: DataFrame, task: Task, schema: str) -> DataFrame:
    """Run a task on every partition. `schema`: of the task's rows, as in Spark SQL."""

    def work(batches: Batches) -> Batches:  # Spark requires a plain function
        return task(batches)

    return rows.mapInArrow(work, schema)


def numbers(spark: SparkSession, count: int) -> DataFrame:
    """Return the numbers below `count`, each in its own partition and so its own task."""
    return spark.range(0, count, 1, max(1, count))


def read_numbers(batches: Batches) -> Iterator[int]:
    """Yield the numbers in a task's batches."""
    for batch in batches:
        yield from batch.column(0).to_pylist()


def as_batch(rows: Iterable[Sequence[object]], schema: pa.Schema) -> pa.RecordBatch:
    """Return rows as one batch. Precondition: there is at least one row."""
    columns = zip(*rows, strict=True)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.record_batch(arrays, schema=schema)


def split_by_size(items: Iterable[T], size: Callable[[T], int], enough: int) -> Iterator[list[T]]:
    """Group items into lists; a list ends with the item that brings its total size to `enough`."""
    portion: list[T] = []
    room = enough
    for item in items:
        portion.append(item)
        room -= size(item)
        if room <= 0:
            yield portion
            portion, room = [], enough
    if portion:
        yield portion


def read_rows(batches: Batches) -> Iterator[Row]:
    """Yield the rows of Arrow batches."""
    for batch in batches:
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def write_rows(rows: Iterable[Row]) -> Batches:
    """Yield rows as Arrow batches of some `BATCH_BYTES`."""
    for portion in split_by_size(rows, lambda row: ROW_BYTES + len(row[4]), BATCH_BYTES):
        yield as_batch(portion, _ARROW)


def to_payload(labels: list[Label], values: Values) -> bytes:
    """Encode the payload of a row to a port. Raises PayloadError."""
    return pack((encode_labels(labels), encode_rows(values)))


def from_payload(payload: bytes) -> tuple[list[Label], Values]:
    """Decode the labels and values of a payload, as after a shuffle."""
    columns = unpack(payload)
    assert isinstance(columns, tuple)
    labels, values = map(decode_rows, columns)
    return labels, values  # type: ignore[return-value]


def roots(rows: Iterable[Row]) -> Iterator[tuple[list[Label], Values]]:
    """Yield the elements of each root, in label order. Precondition: rows are sorted by root."""
    for _, rows_of_root in groupby(rows, key=lambda row: (row[2], row[3])):
        payloads = [from_payload(row[4]) for row in rows_of_root]
        labels, values = payloads[0]
        for more_labels, more_values in payloads[1:]:
            labels += more_labels
            values += more_values
        if len(payloads) > 1 or labels != sorted(labels):
            order = sorted(range(len(labels)), key=labels.__getitem__)
            labels = [labels[i] for i in order]
            values = [values[i] for i in order]
        yield labels, values


def by_root_and_partition(
    labels: Iterable[Label], values: Values, partitions: Iterable[int]
) -> Iterator[tuple[tuple[int, int, int], list[Label], Values]]:
    """Group elements by root and partition: ((time, front, partition), labels, values) each."""
    groups: dict[tuple[int, int, int], tuple[list[Label], list[object]]] = {}
    for label, value, partition in zip(labels, values, partitions, strict=True):
        place = label[0], label[1], partition
        columns = groups.get(place)
        if columns is None:
            columns = groups[place] = ([], [])
        columns[0].append(label)
        columns[1].append(value)
    for place, (group_labels, group_values) in groups.items():
        yield place, group_labels, group_values


@contextmanager
def reraise_task_errors() -> Iterator[None]:
    """Turn Spark's errors into the DriftlineError that a task raised, or else into Unavailable."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise _to_driftline_error(str(error)) from None


def _to_driftline_error(text: str) -> DriftlineError:
    for name, message in reversed(_RAISED.findall(text)):
        kind = getattr(errors, name, None)
        if isinstance(kind, type) and issubclass(kind, DriftlineError):
            error = DriftlineError.__new__(kind)
            Exception.__init__(error, message.strip())
            return error
    raised = _RAISED.findall(text)
    if not raised:
        return Unavailable(text)
    name, message = raised[-1]
    return Unavailable(f"Spark could not finish: {name}: {message}")
