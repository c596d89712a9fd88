"""Consumers: each stores the items of a bundle and its t_last in one atomic, durable step.

consumer = JsonLinesConsumer(Path("out"), "barrier-0", flow, identity)
consumer.deliver(bundle)  # returns when the bundle is durable
consumer.last("barrier-0", groups).t_last == bundle.t_last
"""

from driftline.connectors.sinks.consumer import NO_BUNDLE, Consumer, LastStored, items_of
from driftline.connectors.sinks.jsonl import JsonLinesConsumer
from driftline.connectors.sinks.lines import JsonLines
from driftline.connectors.sinks.memory import MemoryConsumer
from driftline.engine.wire.messages import Bundle

__all__ = [
    "NO_BUNDLE",
    "Bundle",
    "Consumer",
    "JsonLines",
    "JsonLinesConsumer",
    "LastStored",
    "MemoryConsumer",
    "items_of",
]
