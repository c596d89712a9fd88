"""Rows: what travels between the tasks of a batch run.

A row is a frame: the elements of one root that go from one task to one port of one partition, in
columns. So Spark moves and sorts a few rows for each record of the input, not one for each
element, and a row needs nothing to be in order but its root, (time, front).

Rows to OUTPUT hold outputs as they are in bundles; to SET_ASIDE, records that could not be read;
to READ, how many were; to LAST, the last one's time; to STATE, keys whose state is not what it has
to be in the end. They travel on through all tasks to those that write or compare.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

import pyarrow as pa

from driftline.engine.labels import Label
from driftline.engine.order.steps import Values
from driftline.engine.wire.codec import decode_rows, encode_rows, pack, unpack
from driftline.engine.wire.label_columns import encode_labels
from driftline.pipeline.spark.arrow import Batches, as_batch, chunks

SCHEMA = "to int, part int, time long, front int, payload binary"

OUTPUT, SET_ASIDE, READ, LAST, STATE = -1, -2, -3, -4, -5

Row = tuple[int, int, int, int, bytes]
"""(port or one of the above, partition, time, front, payload)"""

_ARROW = pa.schema(
    [
        ("to", pa.int32()),
        ("part", pa.int32()),
        ("time", pa.int64()),
        ("front", pa.int32()),
        ("payload", pa.binary()),
    ]
)

BATCH_BYTES = 2**22
ROW_BYTES = 2**12
"""What a row costs beside its payload: a batch has a thousand rows at most."""


def read_rows(batches: Batches) -> Iterator[Row]:
    """The rows of Arrow batches."""
    for batch in batches:
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def write_rows(rows: Iterable[Row]) -> Batches:
    """Rows as Arrow batches of moderate size."""
    for chunk in chunks(rows, lambda row: ROW_BYTES + len(row[4]), BATCH_BYTES):
        yield as_batch(chunk, _ARROW)


def to_payload(labels: list[Label], values: Values) -> bytes:
    """The payload of a row to a port. Raises PayloadError."""
    return pack((encode_labels(labels), encode_rows(values)))


def from_payload(payload: bytes) -> tuple[list[Label], Values]:
    """What `to_payload` was given, as it is after a shuffle."""
    parts = unpack(payload)
    assert isinstance(parts, tuple)
    labels, values = map(decode_rows, parts)
    return labels, values  # type: ignore[return-value]


def roots(rows: Iterable[Row]) -> Iterator[tuple[list[Label], Values]]:
    """The elements of each root, in label order; rows come in the order of their roots."""
    for _, found in groupby(rows, key=lambda row: (row[2], row[3])):
        pieces = [from_payload(row[4]) for row in found]
        labels, values = pieces[0]
        for more_labels, more_values in pieces[1:]:
            labels += more_labels
            values += more_values
        if len(pieces) > 1 or labels != sorted(labels):
            order = sorted(range(len(labels)), key=labels.__getitem__)
            labels = [labels[i] for i in order]
            values = [values[i] for i in order]
        yield labels, values


def by_root_and_part(
    labels: Iterable[Label], values: Values, parts: Iterable[int]
) -> Iterator[tuple[tuple[int, int, int], list[Label], Values]]:
    """((time, front, partition), labels, values) of elements, where each goes to a partition."""
    found: dict[tuple[int, int, int], tuple[list[Label], list[object]]] = {}
    for label, value, part in zip(labels, values, parts, strict=True):
        place = label[0], label[1], part
        there = found.get(place)
        if there is None:
            there = found[place] = ([], [])
        there[0].append(label)
        there[1].append(value)
    for place, (some_labels, some_values) in found.items():
        yield place, some_labels, some_values
