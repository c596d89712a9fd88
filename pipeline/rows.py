"""Rows: the messages between the tasks of a batch run.

A row is a frame: the elements of one root that go from one task to one port of one partition, in
columns. So Spark moves and sorts a few rows for each record of the input, not one for each
element; and it sorts rows by their root, (time, front).

The column `to` is a port, or a kind of result: OUTPUT, a blob of outputs as in bundles; SET_ASIDE,
a record that could not be read; READ, the number of records read, as `time`; LAST, the time of the
last record; STATE, a key with a wrong state. Results pass all later tasks, up to the task that
writes or compares them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

import pyarrow as pa

from driftline.engine.labels import Label
from driftline.engine.operators.steps import Values
from driftline.engine.wire.codec import decode_rows, encode_rows, pack, unpack
from driftline.engine.wire.label_columns import encode_labels
from driftline.pipeline.tasks import Batches, as_batch, portions

SCHEMA = "to int, partition int, time long, front int, payload binary"

OUTPUT, SET_ASIDE, READ, LAST, STATE = -1, -2, -3, -4, -5

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
"""The cost of a row besides its payload: a batch has a thousand rows at most."""


def read_rows(batches: Batches) -> Iterator[Row]:
    """The rows of Arrow batches."""
    for batch in batches:
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def write_rows(rows: Iterable[Row]) -> Batches:
    """Rows as Arrow batches of moderate size."""
    for portion in portions(rows, lambda row: ROW_BYTES + len(row[4]), BATCH_BYTES):
        yield as_batch(portion, _ARROW)


def to_payload(labels: list[Label], values: Values) -> bytes:
    """The payload of a row to a port. Raises PayloadError."""
    return pack((encode_labels(labels), encode_rows(values)))


def from_payload(payload: bytes) -> tuple[list[Label], Values]:
    """The labels and values of a payload, as after a shuffle."""
    columns = unpack(payload)
    assert isinstance(columns, tuple)
    labels, values = map(decode_rows, columns)
    return labels, values  # type: ignore[return-value]


def roots(rows: Iterable[Row]) -> Iterator[tuple[list[Label], Values]]:
    """The elements of each root, in label order. Precondition: rows in the order of their roots."""
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
