"""Connectors: the sources of a flow's records and the sinks of its outputs.

A connector is one module behind a URI scheme, with `open_source`, `open_sink` or both; the list is
in `connectors.registry`. Another package adds its own in the entry-point group
``driftline.connectors``:

    [project.entry-points."driftline.connectors"]
    mqtt = "shop_mqtt"

Then ``driftline run FLOW --input mqtt://broker/orders --output mqtt://broker/totals --state DIR``
calls ``shop_mqtt.open_source("mqtt://broker/orders")`` to open the source. Each node calls
``shop_mqtt.open_sink("mqtt://broker/totals", context)`` to open its sink.
"""

from driftline.connectors.live import LiveSource, Record
from driftline.connectors.registry import Connector, open_sink, open_source
from driftline.connectors.sinks.consumer import (
    NO_BUNDLE,
    Consumer,
    LastStored,
    SinkContext,
    items_of,
)
from driftline.engine.sources.source import BadRecord, Source
from driftline.engine.wire.messages import Bundle

__all__ = [
    "NO_BUNDLE",
    "BadRecord",
    "Bundle",
    "Connector",
    "Consumer",
    "LastStored",
    "LiveSource",
    "Record",
    "SinkContext",
    "Source",
    "items_of",
    "open_sink",
    "open_source",
]
