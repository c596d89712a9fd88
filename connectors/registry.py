"""Registry of connectors by URI scheme; the scheme of an address selects its connector.

>>> scheme_of("python:shop.py:orders"), scheme_of("mqtt://broker/a"), scheme_of("c:odd.jsonl")
('python', 'mqtt', '')
"""

from __future__ import annotations

import importlib
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

from driftline.connectors.guarded import CheckedSource, call_guarded
from driftline.connectors.live import LiveSource
from driftline.connectors.python import check_name
from driftline.connectors.sinks.consumer import Consumer, SinkContext
from driftline.engine.errors import FlowError
from driftline.engine.sources.source import Source

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "driftline.connectors"
"""The entry-point group in which other packages register their connectors."""

BUILT_IN = {
    "jsonl": "driftline.connectors.sinks.jsonl",
    "lmdb": "driftline.connectors.sinks.lmdb",
    "python": "driftline.connectors.python",
}
"""Scheme -> module of a built-in connector."""


_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(//)?")
"""A scheme has at least two characters: a single letter may be a Windows drive."""


class Connector(Protocol):
    """Module of a connector; it may lack one of these functions."""

    def open_source(self, address: str) -> Source | LiveSource:
        """Open the source at an address. Raise FlowError or Unavailable."""

    def open_sink(self, address: str, context: SinkContext) -> Consumer:
        """Open the sink at an address for one barrier. Raise FlowError or Unavailable."""


def open_source(address: str) -> CheckedSource | LiveSource:
    """Open the source at an address with a scheme.

    Raises FlowError if no connector has its scheme, and the errors of the connector.
    """
    connector = _load_connector(address, "open_source")
    title = f"the connector of {address}"
    source = call_guarded(title, lambda: connector.open_source(address))
    if not isinstance(source, Source | LiveSource):
        raise FlowError(
            f"{address}: the connector returned a {type(source).__name__}, not a source"
        )
    return source if isinstance(source, LiveSource) else CheckedSource(source)


def open_sink(address: str, context: SinkContext) -> Consumer:
    """Open the sink at an address with a scheme.

    Raises FlowError if no connector has its scheme, and the errors of the connector.
    """
    connector = _load_connector(address, "open_sink")
    title = f"the connector of {address}"
    sink = call_guarded(title, lambda: connector.open_sink(address, context))
    if not isinstance(sink, Consumer):
        raise FlowError(f"{address}: the connector returned a {type(sink).__name__}, not a sink")
    return sink


def check_sink(address: str) -> None:
    """Raise FlowError if no connector can open a sink at an address; the sink is not opened."""
    _load_connector(address, "open_sink")
    if scheme_of(address) == "python":
        check_name(address)


def scheme_of(address: str) -> str:
    """Return the scheme of an address, empty for a path.

    A text with `://` after its scheme is an address. A text with only a colon is an address if a
    connector has the scheme, otherwise a path.
    """
    match = _SCHEME.match(address)
    if match is None or (
        match[2] is None and match[1] not in {*BUILT_IN, *_installed_connectors()}
    ):
        return ""
    return match[1]


def check_path(text: str) -> None:
    """Raise FlowError for a path that looks like an address with a mistyped scheme."""
    if (match := _SCHEME.match(text)) is not None and not Path(text).exists():
        raise FlowError(
            f"{text} looks like an address, but there is no connector for {match[1]!r}, only for "
            f"{_known_schemes()}; if it is a path, give ./{text}"
        )


def _known_schemes() -> str:
    return ", ".join(sorted({*BUILT_IN, *_installed_connectors()}))


def _load_connector(address: str, function: str) -> Connector:
    """Load the connector of an address.

    Raise FlowError if there is none, or if it lacks the function of this name.
    """
    scheme = scheme_of(address)
    if scheme in BUILT_IN:
        connector = importlib.import_module(BUILT_IN[scheme])
    elif scheme in _installed_connectors():
        load = _installed_connectors()[scheme].load
        connector = call_guarded(f"the connector of {address}", load)
    else:
        raise FlowError(
            f"{address}: there is no connector for {scheme!r}, only for {_known_schemes()}; "
            "install the package that provides it"
        )
    if not hasattr(connector, function):
        kind = function.removeprefix("open_")
        raise FlowError(f"{address}: the connector for {scheme!r} cannot open a {kind}")
    return cast(Connector, connector)


@cache
def _installed_connectors() -> dict[str, EntryPoint]:
    """Return scheme -> entry point of the connectors of other packages."""
    # Imported here, because this import takes a tenth of the start time of a process.
    from importlib.metadata import entry_points

    return {point.name: point for point in entry_points(group=GROUP)}
