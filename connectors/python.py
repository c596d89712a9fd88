"""`python:FILE.py:NAME` and `python:MODULE:NAME`: a source or a sink in the user's Python code.

NAME is a source or a sink, or a class or function that makes one. If a class or function for a sink
requires an argument, it gets the `SinkContext`. Each process that uses the source or the sink loads
it itself.
"""

from __future__ import annotations

from driftline.connectors.live import LiveSource
from driftline.connectors.sinks.consumer import Consumer, SinkContext
from driftline.engine.errors import FlowError
from driftline.engine.flow.loading import find_object, load_object
from driftline.engine.sources.source import Source


def open_source(address: str) -> Source | LiveSource:
    """Load or make the source. Raises FlowError if it is not a source, or its code raises."""
    loaded = load_object(_name_in(address))
    if not isinstance(loaded, Source | LiveSource):
        raise FlowError(
            f"{address} is a {type(loaded).__name__}, not a source: derive it from LiveSource, or "
            "give it the members of Source: name, read, progress, identity"
        )
    return loaded


def open_sink(address: str, context: SinkContext) -> Consumer:
    """Load or make the sink. Raises FlowError if it is not a sink, or its code raises."""
    loaded = load_object(_name_in(address), context)
    if not isinstance(loaded, Consumer):
        raise FlowError(
            f"{address} is a {type(loaded).__name__}, not a sink: give it the methods of Consumer: "
            "deliver, last, close"
        )
    return loaded


def check_name(address: str) -> None:
    """Raise FlowError if there is no object of this name. Calls no class or function."""
    find_object(_name_in(address))


def _name_in(address: str) -> str:
    return address.removeprefix("python:").removeprefix("//")
