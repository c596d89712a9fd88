"""Columns of the rows that micro-batches exchange: packed values and whole numbers."""

from __future__ import annotations

from pyspark.sql.types import BinaryType, LongType, StructField, StructType


def binary(*names: str) -> StructType:
    """Columns of packed values."""
    return StructType([StructField(name, BinaryType()) for name in names])


def long(name: str) -> StructType:
    """A column of whole numbers."""
    return StructType([StructField(name, LongType())])
