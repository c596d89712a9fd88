"""Tasks of Spark as functions from Arrow batches to Arrow batches, and what they have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

T = TypeVar("T")

Batches = Iterator[pa.RecordBatch]
Task = Callable[[Batches], Batches]


def apply(rows: DataFrame, task: Task, schema: str) -> DataFrame:
    """Let a task work on every partition; what it gives has a schema as Spark's SQL writes it."""

    def work(batches: Batches) -> Batches:  # Spark wants to see a plain function
        return task(batches)

    return rows.mapInArrow(work, schema)


def numbers(spark: SparkSession, count: int) -> DataFrame:
    """The numbers from 0 on, each in a partition of its own: one task for each part of a work."""
    return spark.range(0, count, 1, max(1, count))


def read_numbers(batches: Batches) -> Iterator[int]:
    """The numbers that a task is given."""
    for batch in batches:
        yield from batch.column(0).to_pylist()


def as_batch(rows: Iterable[Sequence[object]], schema: pa.Schema) -> pa.RecordBatch:
    """Rows as one batch; there must be some."""
    columns = zip(*rows, strict=True)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.record_batch(arrays, schema=schema)


def chunks(items: Iterable[T], size: Callable[[T], int], enough: int) -> Iterator[list[T]]:
    """Items in lists, each as soon as the sizes of what is in it add up to enough."""
    chunk: list[T] = []
    left = enough
    for item in items:
        chunk.append(item)
        left -= size(item)
        if left <= 0:
            yield chunk
            chunk, left = [], enough
    if chunk:
        yield chunk
