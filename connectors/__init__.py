"""Connectors: where the records of a flow come from.

A connector is one module behind a URI scheme; the list is in `connectors.registry`. Another package
adds its own in the entry-point group ``driftline.connectors``:

    [project.entry-points."driftline.connectors"]
    mqtt = "shop_mqtt"

Then ``driftline run FLOW --input mqtt://broker/orders`` opens its source with
``shop_mqtt.open_source("mqtt://broker/orders")``.
"""

from driftline.connectors.live import LiveSource, Record
from driftline.connectors.registry import Connector, open_source

__all__ = ["Connector", "LiveSource", "Record", "open_source"]
