"""Consumers: each stores the items of a bundle and its t_last in one atomic, durable step.

consumer = JsonLinesConsumer(Path("out"), "barrier-0", flow, identity)
consumer.deliver(bundle)  # returns when the bundle is durable
consumer.last("barrier-0", groups).t_last == bundle.t_last
"""

from driftline.engine.sinks.consumer import NO_BUNDLE, Consumer, Last, items_of
from driftline.engine.sinks.jsonl import JsonLinesConsumer
from driftline.engine.sinks.lines import Lines
from driftline.engine.sinks.lmdb import LmdbConsumer, read_items
from driftline.engine.sinks.memory import MemoryConsumer
from driftline.engine.wire.messages import Bundle

__all__ = [
    "NO_BUNDLE",
    "Bundle",
    "Consumer",
    "JsonLinesConsumer",
    "Last",
    "Lines",
    "LmdbConsumer",
    "MemoryConsumer",
    "items_of",
    "read_items",
]
