"""The contract of sinks: a consumer stores bundles (`deliver`) and returns the last one (`last`).

Invariants: per barrier t_last grows; after a crash at any moment `last` returns either the bundle
that was being delivered or its predecessor, and the committed items are exactly the items up to the
returned bundle.

For exactly-once output a consumer only has to store items and t_last in one atomic step (paper
"Delivery, consistency, and determinism", section V-A2).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from typing import Protocol, runtime_checkable

from msgspec import Struct

from driftline.engine.errors import MalformedMessage
from driftline.engine.flow.flow import Flow
from driftline.engine.operators.steps import FAILURES
from driftline.engine.storage.ownership import NO_OWNER, DirectoryOwner
from driftline.engine.wire.bundles import Item, from_blob
from driftline.engine.wire.messages import Bundle


class LastStored(Struct, frozen=True):
    """The last bundle of a barrier that a consumer has stored; t_last -1: none yet."""

    t_last: int
    """All outputs up to this time are stored, inclusive; -1 without any bundle. Policies without
    label order count epochs, productions or bundles instead (see `barrier.barrier`)."""
    checksum: int
    """The running checksum over all blobs up to the last one of the bundle."""
    blobs: tuple[bytes, ...]
    """The bundle's blobs. Without them a differing replay is detected, but the error cannot name
    the output that differs."""


NO_BUNDLE = LastStored(-1, 0, ())
"""Result of `Consumer.last` if no bundle of the barrier is stored."""


@runtime_checkable
class Consumer(Protocol):
    """Store of the outputs of one or several barriers."""

    def deliver(self, bundle: Bundle) -> None:
        """Store a bundle; return when it is durable.

        Args:
            bundle: Stored entirely or not at all. If its `t_last` is not larger than that of the
                last stored bundle of the same barrier, the call changes nothing.

        Raises:
            Unavailable: If the bundle may not be durable. `last` shows whether it is stored.
            PayloadError: If the target cannot store a payload. Then nothing is stored.
        """

    def last(self, barrier: str, groups: tuple[int, int]) -> LastStored:
        """Return the last stored bundle of a barrier.

        Args:
            barrier: The name in `SinkContext.barrier`, such as `1f0c.../barrier-0`.
            groups: The first and the last key group that the barrier owns now.

        Returns:
            The last bundle; NO_BUNDLE if there is none.

        Raises:
            StateMismatch: If the last bundle has other key groups, because the run had another
                number of nodes.
        """

    def close(self) -> None:
        """Release files and locks; may be called again. Stored bundles stay."""


class SinkContext(Struct, frozen=True):
    """The arguments with which a connector opens a sink."""

    flow: Flow
    """The flow. `Item.sink` is an index into its `sinks`; -1 stands for a dead letter."""
    barrier: str
    """Name of the barrier whose outputs the sink stores, with a prefix of the run, such as
    `dc85f30a5eff0b9d/barrier-0`; the same as in `last` and in bundles.

    Each node has one barrier, and opens a sink for it in its own process.
    """
    dead_letters: bool = False
    """Whether failed elements become dead letters; if so, an output that the target cannot store
    may become one, too."""
    directory: Path | None = None
    """The directory of the run's own records about its outputs; None if the run keeps none."""
    identity: str = ""
    """Flow, inputs and policy of the run, as a text; a directory belongs to one identity."""
    owner: DirectoryOwner = NO_OWNER
    """The run and its session."""
    on_failures: Callable[[Sequence[Item]], None] | None = None
    """Called with the dead letters of each bundle once they are stored."""


def items_of(bundle: Bundle, sinks: int | None = None) -> list[Item]:
    """Return the outputs of a bundle.

    A bundle comes from a network, so this function checks its items.

    Args:
        bundle: The bundle.
        sinks: Number of sinks of the flow; None skips this check.

    Returns:
        The outputs, in the order in which the barrier released them. With label order
        (`exactly-once`), this is the order of labels.

    Raises:
        MalformedMessage: If the items are not outputs of a flow with this number of sinks.
    """
    items = [item for blob in bundle.blobs for item in from_blob(blob)]
    check_items(items, sinks)
    return items


def check_items(items: Sequence[Item], sinks: int | None = None) -> None:
    """Raise MalformedMessage if the items are not outputs of a flow; `sinks`: see `items_of`."""
    labels = [item.label for item in items]
    if set(map(type, labels)) - {tuple}:
        raise MalformedMessage("a bundle with a label that is not a tuple")
    numbers = list(chain.from_iterable(labels))
    if set(map(type, numbers)) - {int} or min(numbers, default=0) < 0:
        raise MalformedMessage(
            "a bundle with a label whose parts are not all non-negative integers"
        )
    for sink in {item.sink for item in items}:
        if type(sink) is not int or sink < FAILURES or (sinks is not None and sink >= sinks):
            raise MalformedMessage(f"a bundle for sink {sink!r}, which is not in the flow")
