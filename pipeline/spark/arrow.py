"""Spark tasks as functions from Arrow batches to Arrow batches, and helpers for them."""

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
    """Run a task on every partition. `schema`: of the task's rows, as in Spark's SQL."""

    def work(batches: Batches) -> Batches:  # Spark wants to see a plain function
        return task(batches)

    return rows.mapInArrow(work, schema)


def numbers(spark: SparkSession, count: int) -> DataFrame:
    """The numbers below `count`, each in a partition of its own: a task for each number."""
    return spark.range(0, count, 1, max(1, count))


def read_numbers(batches: Batches) -> Iterator[int]:
    """The numbers in a task's batches."""
    for batch in batches:
        yield from batch.column(0).to_pylist()


def as_batch(rows: Iterable[Sequence[object]], schema: pa.Schema) -> pa.RecordBatch:
    """Rows as one batch. Precondition: there is at least one row."""
    columns = zip(*rows, strict=True)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.record_batch(arrays, schema=schema)


def portions(items: Iterable[T], size: Callable[[T], int], enough: int) -> Iterator[list[T]]:
    """Items in lists; a list ends with the item that brings its total size to `enough`."""
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
