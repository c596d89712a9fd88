"""The consumer server: the role around a consumer, remote or beside a node.

Takes `FetchLast` and `Bundle` (barriers). Gives `LastBundle`, `BundleStored`, or `Failed` where a
repetition would not help (a payload that the target cannot hold, a directory of another run).

The first question of an incarnation raises a fence: bundles of earlier ones, still on their way
or from a node that does not know yet that it has been replaced, are not stored any more. A server
that has just started has no fence, so it wants to be asked before it stores anything; a barrier
that waits for an answer asks.

Invariant: what is answered as stored is durable, and stored once.
"""

from __future__ import annotations

from collections.abc import Callable

from driftline.engine.errors import DriftlineError, MalformedMessage, Unavailable
from driftline.engine.sinks.consumer import Consumer
from driftline.engine.wire.messages import (
    Bundle,
    BundleStored,
    Failed,
    FetchLast,
    LastBundle,
    Message,
)
from driftline.engine.wire.party import Party, log


class ConsumerServer(Party):
    """Serves any number of barriers; `make` gives the consumer of each."""

    def __init__(self, make: Callable[[str], Consumer]) -> None:
        super().__init__("consumer")
        self.fences: dict[str, int] = {}
        """Per barrier, the highest incarnation that has asked."""
        self.trouble: dict[str, str] = {}
        """Per barrier, why its last message could not be dealt with, if so."""
        self._make = make
        self._consumers: dict[str, Consumer] = {}

    def handle(self, sender: str, message: Message) -> None:
        if not isinstance(message, (FetchLast, Bundle)):
            raise MalformedMessage(f"{type(message).__name__} is not for a consumer")
        if self._is_fenced_off(message):
            return
        try:
            if isinstance(message, FetchLast):
                self._tell_last(sender, message)
            else:
                self._store(sender, message)
        except MalformedMessage:
            raise
        except Unavailable as error:
            self._note(message.barrier, str(error))  # and no answer: the barrier asks again
        except DriftlineError as error:
            log.error("%s: %s", message.barrier, error)
            self.send(sender, Failed(message.incarnation, type(error).__name__, str(error)))
        else:
            self._note(message.barrier, "")

    def channel_lost(self, sender: str) -> None:
        """Nothing to do: the messages of consumers are not numbered."""

    def close(self) -> None:
        """Close all consumers."""
        for consumer in self._consumers.values():
            consumer.close()
        self._consumers.clear()

    def _is_fenced_off(self, message: FetchLast | Bundle) -> bool:
        fence = self.fences.get(message.barrier)
        if fence is None:
            return isinstance(message, Bundle)
        return message.incarnation < fence

    def _tell_last(self, sender: str, asked: FetchLast) -> None:
        self.fences[asked.barrier] = asked.incarnation
        self.addresses[sender] = asked.address
        last = self._consumer(asked.barrier).last(asked.barrier, asked.groups)
        found = last.blobs, last.t_last, last.checksum
        self.send(sender, LastBundle(asked.barrier, asked.incarnation, asked.number, *found))

    def _store(self, sender: str, bundle: Bundle) -> None:
        consumer = self._consumer(bundle.barrier)
        if bundle.t_last > consumer.last(bundle.barrier, bundle.groups).t_last:
            consumer.deliver(bundle)
        self.send(sender, BundleStored(bundle.barrier, bundle.incarnation, bundle.t_last))

    def _consumer(self, barrier: str) -> Consumer:
        if barrier not in self._consumers:
            self._consumers[barrier] = self._make(barrier)
        return self._consumers[barrier]

    def _note(self, barrier: str, trouble: str) -> None:
        """Log the beginning and the end of a trouble, not every attempt."""
        before = self.trouble.pop(barrier, "")
        if trouble:
            self.trouble[barrier] = trouble
        if trouble and not before:
            log.warning("%s: %s; trying again", barrier, trouble)
        elif before and not trouble:
            log.warning("%s: its consumer is available again", barrier)
