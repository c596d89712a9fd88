"""The data pipeline on Spark: the same flows, the same outputs, at any size.

    from driftline import pipeline
    from driftline.pipeline.session import session

    with session("history") as spark:
        pipeline.run(flow, spark, [open_source("pages.xml.bz2", sections=True)], Path("out"))

Importing this package does not import Spark; its first use does.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from driftline.pipeline.runner import run

__all__ = ["run"]

PARTITIONS = 16
"""The default number of partitions of keyed operators; there are at most as many as key groups."""


def __getattr__(name: str) -> object:
    if name == "run":
        return importlib.import_module("driftline.pipeline.runner").run
    raise AttributeError(f"pipeline has no {name!r}")
