"""Driftline with any flow as a measured system; outputs are decoded only after the measurement."""

from __future__ import annotations

import os
from time import perf_counter
from typing import Any

from driftline.bench.systems.engine import Engine
from driftline.connectors.sinks.consumer import NO_BUNDLE, LastStored
from driftline.deploy.roles.consumer import ConsumerServer
from driftline.engine.sources import QueueSource, RetainedSource, Source
from driftline.engine.wire.bundles import Item, from_blob
from driftline.engine.wire.codec import checked_columns, unpack
from driftline.engine.wire.messages import Bundle

POLICY = "exactly-once"


class BundleEngine(Engine):
    """A running cluster with a consumer that keeps the bundles in memory."""

    def __init__(self, flow: str, source: Source | RetainedSource, *, nodes: int) -> None:
        self._source = source
        self._consumer = BundleConsumer()
        super().__init__((), POLICY, flow=flow, nodes=nodes)

    def open_source(self) -> Source | RetainedSource:
        """Return the source."""
        return self._source

    def add_consumer(self) -> None:
        """Add the consumer of the nodes' outputs to the runtime."""
        server = ConsumerServer(lambda barrier: self._consumer)
        self.runtime.add(server, self.config.inbox("consumer"))

    def send_record(self, record: object) -> None:
        """Send a record to the front. Precondition: the source is a `QueueSource`."""
        assert isinstance(self._source, QueueSource)
        self._source.put(record)
        self.front.turn()
        self.runtime.flush(self.front)

    def run_until(self, deadline: float) -> None:
        """Run until a time, by `perf_counter`."""
        while (remaining := deadline - perf_counter()) > 0:
            # Timeouts are whole milliseconds; for the remainder, the loop polls without sleeping.
            self.runtime.step(remaining < 0.001, wait_s=remaining - 0.001)
            os.sched_yield()

    def receive_outputs(self, count: int, patience_s: float) -> float:
        """Run until there are `count` outputs, or none arrives for `patience_s`.

        Return the time of the last arrival, by `perf_counter`.
        """
        outputs, last_arrival, has_more = self._consumer.outputs, perf_counter(), False
        while outputs < count and perf_counter() < last_arrival + patience_s:
            has_more = self.runtime.step(has_more, wait_s=0.1)
            if self._consumer.outputs > outputs:
                outputs, last_arrival = self._consumer.outputs, perf_counter()
        return last_arrival

    def items(self) -> list[tuple[float, Item]]:
        """Return (time of arrival by `perf_counter`, output) for all outputs."""
        return [
            (arrival, item)
            for arrival, bundle in self._consumer.bundles
            for blob in bundle.blobs
            for item in from_blob(blob)
        ]


class BundleConsumer:
    """Consumer that keeps all bundles, and counts their outputs."""

    def __init__(self) -> None:
        self.bundles: list[tuple[float, Bundle]] = []
        """(time of arrival by `perf_counter`, bundle)."""
        self.outputs = 0
        """Number of outputs in the bundles."""
        self._last: dict[str, LastStored] = {}

    def deliver(self, bundle: Bundle) -> None:
        """Keep a bundle."""
        self.bundles.append((perf_counter(), bundle))
        for blob in bundle.blobs:
            parts: Any = unpack(blob)
            self.outputs += checked_columns(parts[2])[0]
        self._last[bundle.barrier] = LastStored(bundle.t_last, bundle.checksum, bundle.blobs)

    def last(self, barrier: str, groups: tuple[int, int]) -> LastStored:
        """Return the last bundle of a barrier."""
        return self._last.get(barrier, NO_BUNDLE)

    def close(self) -> None:
        """Do nothing, since there are no resources to release."""
