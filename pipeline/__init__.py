"""The batch pipeline on Spark: the same flows with the same outputs, at any scale.

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
"""Default number of partitions of keyed operators; the number of key groups is the limit."""


def __getattr__(name: str) -> object:
    if name == "run":
        return importlib.import_module("driftline.pipeline.runner").run
    raise AttributeError(f"pipeline has no {name!r}")
