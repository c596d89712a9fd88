"""The contract of sinks: a consumer stores bundles. Two calls, `deliver` and `last`.

Takes: bundles of a barrier. Gives: the last bundle that it has stored.
Invariants: per barrier t_last grows; after a crash at any moment `last` gives either the bundle
being delivered or the one before it, and the committed items are exactly those up to that bundle.

To store items and t_last in one atomic step is all that exactly-once output needs of a consumer
(Delivery, consistency, and determinism, section V-A2).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Protocol, runtime_checkable

from driftline.engine.errors import MalformedMessage
from driftline.engine.flow.flow import Flow
from driftline.engine.operators.steps import FAILURES
from driftline.engine.storage.manifest import NOBODY, Mark
from driftline.engine.wire.bundles import Item, from_blob
from driftline.engine.wire.messages import Bundle


@dataclass(frozen=True, slots=True)
class Last:
    """The last bundle of a barrier that a consumer has stored; t_last -1: none yet."""

    t_last: int
    """How far the outputs go; -1 when there is no bundle yet."""
    checksum: int
    """The bundle's checksum."""
    blobs: tuple[bytes, ...]
    """The bundle's blobs. They may be left out: then a replay that differs is noticed, but the
    output that differs is not named."""


NO_BUNDLE = Last(-1, 0, ())
"""What a consumer without any bundle of a barrier says."""


@runtime_checkable
class Consumer(Protocol):
    """Stores the outputs of one barrier, or of several."""

    def deliver(self, bundle: Bundle) -> None:
        """Store a bundle; returns when it is durable.

        Args:
            bundle: What is to be stored, whole or not at all. One that the consumer has already,
                as its `t_last` says, changes nothing.

        Raises:
            Unavailable: If it is not known to be durable: `last` tells whether it is there.
            PayloadError: For a payload that the target cannot hold: nothing is stored.
        """

    def last(self, barrier: str, groups: tuple[int, int]) -> Last:
        """How far the outputs of a barrier go.

        Args:
            barrier: The barrier: `barrier-0`, `barrier-1`, ..., one for each node.
            groups: The first and the last key group that it speaks for now.

        Returns:
            Its last bundle, NO_BUNDLE if there is none.

        Raises:
            StateMismatch: If that speaks for others: it was written with another number of nodes.
        """

    def close(self) -> None:
        """Release files and locks; may be called again. Stored bundles stay."""


@dataclass(frozen=True, slots=True)
class SinkContext:
    """What a connector is given to open a sink: for whom it stores outputs."""

    flow: Flow
    """The flow. `Item.sink` counts its `sinks`; -1 stands for a dead letter."""
    barrier: str
    """The barrier whose outputs the sink stores, `barrier-0`, `barrier-1`, ...: each node has one,
    and opens a sink for it in its own process."""
    dead_letters: bool = False
    """Whether elements that fail are set aside: then an output that the target cannot hold may
    become a dead letter."""
    directory: Path | None = None
    """The directory of the run's own records about its outputs; None: the run keeps none."""
    identity: str = ""
    """Flow, inputs and policy of the run, as a text: a directory belongs to one."""
    mark: Mark = NOBODY
    """The run, and its session."""
    on_failures: Callable[[Sequence[Item]], None] | None = None
    """Is given the dead letters of each bundle once they are stored."""


def items_of(bundle: Bundle, sinks: int | None = None) -> list[Item]:
    """The outputs of a bundle.

    A bundle came over a network; what is checked here a consumer need not check.

    Args:
        bundle: The bundle.
        sinks: How many sinks the flow has, if that is to be checked.

    Returns:
        Its outputs, in label order.

    Raises:
        MalformedMessage: For what is no bundle of such a flow.
    """
    items = [item for blob in bundle.blobs for item in from_blob(blob)]
    check_items(items, sinks)
    return items


def check_items(items: Sequence[Item], sinks: int | None = None) -> None:
    """Raise MalformedMessage if these are not outputs of a flow; `sinks`: see `items_of`."""
    labels = [item.label for item in items]
    if set(map(type, labels)) - {tuple}:
        raise MalformedMessage("a bundle with a label that is not a tuple")
    numbers = list(chain.from_iterable(labels))
    if set(map(type, numbers)) - {int} or min(numbers, default=0) < 0:
        raise MalformedMessage("a bundle with a label that has other parts than integers from 0 on")
    for sink in {item.sink for item in items}:
        if type(sink) is not int or sink < FAILURES or (sinks is not None and sink >= sinks):
            raise MalformedMessage(f"a bundle for sink {sink!r}, which is not in the flow")
