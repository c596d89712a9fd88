"""The barrier of strong productions: outputs leave once their production is durable in the node.

As MillWheel's productions do (MillWheel, section 6.1; Delivery, consistency, and determinism,
section IV-A): `seal` gives the outputs of a production, to be made durable with it, `commit` says
that they are durable, and they leave in the order of productions. t_last is the number of the last
production that the consumer has.

Takes: outputs, ends of productions, commits. Gives: bundles, and outputs to make durable.
Invariant: an output leaves only after it is durable, and the node keeps it until the consumer has
it; so after a failure every output that the consumer lacks is in the node's store.
"""

from __future__ import annotations

from collections.abc import Mapping

from driftline.barrier.barrier import ADVICE, Barrier
from driftline.engine.errors import StateMismatch
from driftline.engine.labels import INFINITY
from driftline.engine.operators.steps import Signs, Values
from driftline.engine.snapshots.ledger import Outputs
from driftline.engine.wire.bundles import running_checksum, to_blob
from driftline.engine.wire.label_columns import Labels


class ProductionBarrier(Barrier):
    """Holds outputs per production until the consumer has them."""

    unit = "production"

    def __init__(self, name: str, groups: tuple[int, int], dead_letters: bool = False) -> None:
        super().__init__(name, groups, dead_letters)
        self.unsealed: list[bytes] = []
        """Blobs that are in no production yet."""
        self.first = INFINITY
        """The smallest time of an output in `unsealed`."""
        self.undelivered: dict[int, Outputs] = {}
        """Production -> its outputs, as long as the consumer may not have them."""
        self.processed = 0
        """All nodes have worked off all elements below this time."""

    def hold(
        self, sink: int, labels: Labels, values: Values, signs: Signs, packed: bytes = b""
    ) -> None:
        assert signs is None or signs == [1], "only an ordered barrier can take outputs back"
        self.check_failure(sink, labels[0], values[0])
        self.first = min(self.first, min(labels)[0])
        self.unsealed.append(to_blob(labels, sink, values, packed))

    def progress(self, processed: int) -> None:
        self.processed = max(self.processed, processed)

    def seal(self, production: int) -> Outputs | None:
        """End a production. Returns its outputs, to be made durable; None if it has none."""
        if not self.unsealed:
            return None
        outputs = self.undelivered[production] = self.first, tuple(self.unsealed)
        self.first, self.unsealed = INFINITY, []
        return outputs

    def commit(self, production: int) -> None:
        """All productions up to this one are durable: their outputs may leave."""
        for number, (_, blobs) in self.undelivered.items():
            if self.released_to < number <= production:
                for blob in blobs:
                    self.checksum = running_checksum(self.checksum, blob)
                    self._queue(number, blob)
        self.released_to = production

    def restore(self, production: int, undelivered: Mapping[int, Outputs]) -> None:
        """Start after a durable production. `undelivered`: as in the attribute, in order."""
        self.undelivered = dict(undelivered)
        self.commit(production)

    def last(self, t_last: int, checksum: int, blobs: tuple[bytes, ...]) -> None:
        if t_last > self.released_to:
            raise StateMismatch(
                f"{self.name}: the consumer has outputs of production {t_last}, but the node has "
                f"none after {self.released_to}: the state directory is an old copy, or another "
                f"run's. {ADVICE}"
            )
        super().last(t_last, checksum, blobs)

    def forget(self) -> list[int]:
        """Drop the outputs that the consumer has. Returns the numbers of their productions."""
        delivered = [number for number in self.undelivered if number <= self.t_last]
        for number in delivered:
            del self.undelivered[number]
        return delivered

    @property
    def empty(self) -> bool:
        all_delivered = all(number <= self.t_last for number in self.undelivered)
        return super().empty and not self.unsealed and all_delivered

    @property
    def delivered(self) -> int:
        # All outputs below `processed` have been made, and are durable.
        waiting = [first for number, (first, _) in self.undelivered.items() if number > self.t_last]
        return min([self.processed, *waiting])
