"""The consumer in memory: for tests, the simulation, and users who test their own flows."""

from __future__ import annotations

from driftline.connectors.sinks.commit_record import CommitRecord
from driftline.connectors.sinks.consumer import LastStored, items_of
from driftline.engine.wire.bundles import Item
from driftline.engine.wire.messages import Bundle


class MemoryConsumer:
    """Consumer that keeps the items of any number of barriers in lists."""

    def __init__(self) -> None:
        self.items: list[Item] = []
        """All items, in the order of delivery."""
        self.by_barrier: dict[str, list[Item]] = {}
        """The items of each barrier, in the order of delivery."""
        self._records: dict[str, CommitRecord] = {}

    def deliver(self, bundle: Bundle) -> None:
        """Store the items and the commit record in memory."""
        previous = self._record_of(bundle.barrier)
        if bundle.t_last <= previous.last.t_last:
            return
        items = items_of(bundle)
        self._add(bundle.barrier, items)
        self._records[bundle.barrier] = previous.with_bundle(bundle, items)

    def last(self, barrier: str, groups: tuple[int, int]) -> LastStored:
        """Return the last bundle of a barrier."""
        return self._record_of(barrier).last_for_groups(groups, f"the memory of {barrier}")

    def close(self) -> None:
        """Do nothing."""

    def _add(self, barrier: str, items: list[Item]) -> None:
        self.items += items
        self.by_barrier.setdefault(barrier, []).extend(items)

    def _record_of(self, barrier: str) -> CommitRecord:
        return self._records.get(barrier, CommitRecord())
