"""`python:FILE.py:NAME` and `python:MODULE:NAME`: a source of the user's own Python code.

NAME is a source, or a class or function without arguments that makes one. Each process that reads
the source loads it for itself.
"""

from __future__ import annotations

from driftline.connectors.live import LiveSource
from driftline.engine.errors import FlowError
from driftline.engine.flow.loading import load_object
from driftline.engine.sources.source import Source


def open_source(address: str) -> Source | LiveSource:
    """Load or make the source. Raises FlowError if it is none, or if its code raises."""
    made = load_object(address.removeprefix("python:").removeprefix("//"))
    if not isinstance(made, Source | LiveSource):
        raise FlowError(
            f"{address} is a {type(made).__name__}, not a source: derive it from LiveSource, or "
            "give it the members of Source: name, read, progress, identity"
        )
    return made
