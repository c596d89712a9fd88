"""The data pipeline on Spark: the same flows, the same outputs, at any size.

    from driftline import pipeline
    from driftline.pipeline.spark.session import session

    with session("history") as spark:
        pipeline.run(flow, spark, [open_source("pages.xml.bz2", sections=True)], Path("out"))

Nothing here imports Spark before it is used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from driftline.pipeline.running.runner import run

__all__ = ["run"]

PARTITIONS = 16
"""Partitions of keyed operators, unless it is said otherwise; never more than key groups."""


def __getattr__(name: str) -> object:
    if name == "run":
        return importlib.import_module("driftline.pipeline.running.runner").run
    raise AttributeError(f"pipeline has no {name!r}")
