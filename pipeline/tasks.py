"""Spark tasks as functions from Arrow batches to Arrow batches, with helpers and error handling.

Rows are the messages between the tasks of a batch run. A row to a port is a frame: the elements of
one root that go from one task to one partition of the port. So Spark moves and sorts a few rows per
input record instead of one per element. A keyed task gets its rows in the order of (to, time,
front). The columns of a row hold:

to          partition   time                 front                  payload
a port      receiver's  the root's           the root's             labels, values (`to_payload`)
a port      receiver's  first in payload     -1 - front             ((time, event time), ...)
a port      receiver's  BEGIN                0                      b"": the port's first row
OUTPUT      sender's/0  the outputs'         0                      outputs, a blob as in bundles
SET_ASIDE   0           the record's         front                  line of the unreadable record
READ        0           number of records    front                  b""
LAST        0           the last record's    front                  b""
STATE       0           key group            number of the vertex   ((), expected, found, key)
EVENT_TIME  0           largest event time   3 * front + `Status`   b""

"the root's" is the root's time or front, and so on. The sender of an OUTPUT is the partition of a
keyed task; 0: a task that reads an input. LAST has the time of the last record that a split has
read, or of the mark at the end of the source (`ReadTask`). STATE stands for a key with a wrong
state. Rows that do not go to a port are results: later tasks forward them, up to the task that
writes or compares them. The driver raises the errors of tasks again, with their types.
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
"""Kinds of results, in the column `to`."""

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
"""The assumed size of a row without its payload; it limits a batch to 1024 rows."""

_RAISED_ERROR = re.compile(
    r"^(?:[\w.]+\.)?(\w+): (.*?)(?=\n\n|\n\tat |\n *During handling|\Z)", re.M | re.S
)


def map_partitions(rows: DataFrame, task: Task, schema: str) -> DataFrame:
    """Run a task on each partition of the rows; return its output, which has this schema."""

    def work(batches: Batches) -> Batches:  # Spark requires a plain function
        return task(batches)

    return rows.mapInArrow(work, schema)


def numbers(spark: SparkSession, count: int) -> DataFrame:
    """Return the numbers below `count` as rows, each in a partition, and so a task, of its own."""
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


def split_by_size(items: Iterable[T], size: Callable[[T], int], target: int) -> Iterator[list[T]]:
    """Group items into lists; a list ends with the item that brings its total size to `target`."""
    portion: list[T] = []
    remaining = target
    for item in items:
        portion.append(item)
        remaining -= size(item)
        if remaining <= 0:
            yield portion
            portion, remaining = [], target
    if portion:
        yield portion


def read_rows(batches: Batches) -> Iterator[Row]:
    """Yield the rows of Arrow batches."""
    for batch in batches:
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def write_rows(rows: Iterable[Row]) -> Batches:
    """Yield rows as Arrow batches of about `BATCH_BYTES`."""
    for portion in split_by_size(rows, lambda row: ROW_BYTES + len(row[4]), BATCH_BYTES):
        yield as_batch(portion, _ARROW)


def to_payload(labels: list[Label], values: Values) -> bytes:
    """Encode the payload of a row of elements. Raises PayloadError."""
    return pack((encode_labels(labels), encode_rows(values)))


def from_payload(payload: bytes) -> tuple[list[Label], Values]:
    """Decode the result of `to_payload`. The values have the same types as on nodes."""
    columns = unpack(payload)
    assert isinstance(columns, tuple)
    labels, values = map(decode_rows, columns)
    return labels, values  # type: ignore[return-value]


def elements_by_root(rows: Iterable[Row]) -> Iterator[tuple[list[Label], Values]]:
    """Yield the labels and values of each root, in label order. Rows must be sorted by root."""
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


def group_by_root_and_partition(
    labels: Iterable[Label], values: Values, partitions: Iterable[int]
) -> Iterator[tuple[tuple[int, int, int], list[Label], Values]]:
    """Yield ((time, front, partition), labels, values) of each root and partition."""
    groups: dict[tuple[int, int, int], tuple[list[Label], list[object]]] = {}
    for label, value, partition in zip(labels, values, partitions, strict=True):
        group = label[0], label[1], partition
        columns = groups.get(group)
        if columns is None:
            columns = groups[group] = ([], [])
        columns[0].append(label)
        columns[1].append(value)
    for group, (group_labels, group_values) in groups.items():
        yield group, group_labels, group_values


@contextmanager
def reraise_task_errors() -> Iterator[None]:
    """Replace an error of Spark by the DriftlineError that a task raised, else by Unavailable."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise _to_driftline_error(str(error)) from None


def _to_driftline_error(text: str) -> DriftlineError:
    raised_errors = _RAISED_ERROR.findall(text)
    for name, message in reversed(raised_errors):
        kind = getattr(errors, name, None)
        if isinstance(kind, type) and issubclass(kind, DriftlineError):
            error = DriftlineError.__new__(kind)
            Exception.__init__(error, message.strip())
            return error
    if not raised_errors:
        return Unavailable(text)
    name, message = raised_errors[-1]
    return Unavailable(f"Spark could not finish: {name}: {message}")
