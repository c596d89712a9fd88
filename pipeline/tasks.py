"""Spark tasks as functions from Arrow batches to Arrow batches, helpers for them, and their errors.

Errors of tasks are raised again in the driver as the errors that the tasks raised.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from driftline.engine import errors
from driftline.engine.errors import DriftlineError, Unavailable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


T = TypeVar("T")

Batches = Iterator[pa.RecordBatch]
Task = Callable[[Batches], Batches]

_RAISED = re.compile(
    r"^(?:[\w.]+\.)?(\w+): (.*?)(?=\n\n|\n\tat |\n *During handling|\Z)", re.M | re.S
)


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


@contextmanager
def explained() -> Iterator[None]:
    """Turn Spark's errors into the DriftlineError that a task raised, or else into Unavailable."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise _as_ours(str(error)) from None


def _as_ours(text: str) -> DriftlineError:
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
