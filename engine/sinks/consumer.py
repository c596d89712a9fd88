"""The consumer: stores bundles. Two calls, `deliver` and `last`.

Takes: bundles of a barrier. Gives: the last bundle that it has stored.
Invariants: per barrier t_last grows; after a crash at any moment `last` gives either the bundle
being delivered or the one before it, and the committed items are exactly those up to that bundle.

To store items and t_last in one atomic step is all that exactly-once output needs of a consumer
(Delivery, consistency, and determinism, section V-A2).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import Protocol

from driftline.engine.errors import MalformedMessage
from driftline.engine.order.steps import FAILURES
from driftline.engine.wire.bundles import Item, from_blob
from driftline.engine.wire.messages import Bundle


@dataclass(frozen=True, slots=True)
class Last:
    """The last bundle of a barrier that a consumer has stored; t_last -1: none yet."""

    t_last: int
    checksum: int
    blobs: tuple[bytes, ...]


NO_BUNDLE = Last(-1, 0, ())


class Consumer(Protocol):
    """Stores the outputs of one barrier, or of several."""

    def deliver(self, bundle: Bundle) -> None:
        """Store a bundle; returns when it is durable. Does nothing if the bundle is stored already.

        Raises Unavailable if the bundle may be stored or not: then `last` tells which. Raises
        PayloadError if the target cannot hold a payload: then no item of the bundle is stored.
        """

    def last(self, barrier: str, groups: tuple[int, int]) -> Last:
        """The last bundle of a barrier with these (first, last) key groups.

        Raises StateMismatch if the bundle is of other key groups, Unavailable.
        """

    def close(self) -> None:
        """Release files and locks; may be called again. Stored bundles stay."""


def items_of(bundle: Bundle, sinks: int | None = None) -> list[Item]:
    """The items of a bundle; `sinks`: how many sinks the flow has, None if unknown.

    A bundle comes over a network: its labels and sinks are checked here once, for all consumers.
    Raises MalformedMessage.
    """
    items = [item for blob in bundle.blobs for item in from_blob(blob)]
    labels = [item.label for item in items]
    if set(map(type, labels)) - {tuple}:
        raise MalformedMessage("a bundle with a label that is not a tuple")
    numbers = list(chain.from_iterable(labels))
    if set(map(type, numbers)) - {int} or min(numbers, default=0) < 0:
        raise MalformedMessage("a bundle with a label that has other parts than integers from 0 on")
    for sink in {item.sink for item in items}:
        if type(sink) is not int or sink < FAILURES or (sinks is not None and sink >= sinks):
            raise MalformedMessage(f"a bundle for sink {sink!r}, which is not in the flow")
    return items
