"""The connectors by their URI schemes, and how an address finds its connector.

>>> scheme_of("python:shop.py:orders"), scheme_of("mqtt://broker/a"), scheme_of("c:odd.jsonl")
('python', 'mqtt', '')
"""

from __future__ import annotations

import importlib
import re
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Protocol, cast

from driftline.connectors.live import LiveSource
from driftline.connectors.sinks.consumer import Consumer, SinkContext
from driftline.engine.errors import FlowError
from driftline.engine.sources.source import Source

GROUP = "driftline.connectors"
"""The entry-point group in which other packages name their connectors."""

BUILT_IN = {
    "jsonl": "driftline.connectors.sinks.jsonl",
    "lmdb": "driftline.connectors.sinks.lmdb",
    "python": "driftline.connectors.python",
}
"""Scheme -> module of a connector."""


class Connector(Protocol):
    """The functions of a connector's module; it may have only one of them."""

    def open_source(self, address: str) -> Source | LiveSource:
        """Open the source at an address. Raises FlowError or Unavailable."""

    def open_sink(self, address: str, context: SinkContext) -> Consumer:
        """Open the sink at an address for one barrier. Raises FlowError or Unavailable."""


def open_source(address: str) -> Source | LiveSource:
    """Open the source at an address with a scheme.

    Raises FlowError if no connector has its scheme, and the errors of the connector.
    """
    return _with(address, "open_source").open_source(address)


def open_sink(address: str, context: SinkContext) -> Consumer:
    """Open the sink at an address with a scheme.

    Raises FlowError if no connector has its scheme, and the errors of the connector.
    """
    return _with(address, "open_sink").open_sink(address, context)


def scheme_of(address: str) -> str:
    """Return the scheme of an address, empty for a path.

    A text with `://` is an address; any other text is one if a connector has its scheme.
    """
    found = re.match(r"([a-z][a-z0-9+.-]*):(//)?", address)
    if found is None or (found[2] is None and found[1] not in {*BUILT_IN, *_installed()}):
        return ""
    return found[1]


def connector_for(address: str) -> Connector:
    """Load the connector of an address. Raises FlowError if there is none."""
    scheme = scheme_of(address)
    if scheme in BUILT_IN:
        return cast(Connector, importlib.import_module(BUILT_IN[scheme]))
    if scheme in _installed():
        return cast(Connector, _installed()[scheme].load())
    known = ", ".join(sorted({*BUILT_IN, *_installed()}))
    raise FlowError(
        f"{address}: there is no connector for {scheme!r}, only for {known}; install the package "
        "that provides it"
    )


def _with(address: str, function: str) -> Connector:
    """Load the connector of an address. Raises FlowError if it lacks a function."""
    connector = connector_for(address)
    if not hasattr(connector, function):
        what = function.removeprefix("open_")
        raise FlowError(f"{address}: the connector for {scheme_of(address)!r} has no {what}s")
    return connector


@cache
def _installed() -> dict[str, EntryPoint]:
    """Scheme -> connector of another package."""
    return {point.name: point for point in entry_points(group=GROUP)}
