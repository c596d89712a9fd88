"""Batch runs of flows on Spark, with the same outputs as runs on nodes.

    from driftline import pipeline
    from driftline.connectors.files.files import open_source
    from driftline.pipeline.session import session

    with session("history") as spark:
        pipeline.run(flow, spark, [open_source("pages.xml.bz2", sections=True)], Path("out"))

Importing this package does not import Spark; calling `run` does.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from driftline.pipeline.runner import run

__all__ = ["run"]

PARTITIONS = 16
"""Default number of partitions of keyed operators. A run has at most one per key group."""


def __getattr__(name: str) -> object:
    if name == "run":
        return importlib.import_module("driftline.pipeline.runner").run
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
