"""The barrier of strong productions: outputs leave once their production is durable in the node.

As MillWheel's productions do (MillWheel, section 6.1; Delivery, consistency, and determinism,
section IV-A): `seal` gives the outputs to be made durable, `commit` says that they are, and they
leave in the order of the productions. t_last is the number of the last production that the consumer
has; after a failure the node still has the outputs of all that may come after it.
"""

from __future__ import annotations

from collections.abc import Mapping

from driftline.barrier.barrier import ADVICE, Barrier
from driftline.engine.compared.ledger import Outputs
from driftline.engine.errors import StateMismatch
from driftline.engine.labels import INFINITY
from driftline.engine.order.steps import Signs, Values
from driftline.engine.wire.bundles import running_checksum, to_blob
from driftline.engine.wire.label_columns import Labels


class ProductionBarrier(Barrier):
    """Holds outputs per production, and keeps them until the consumer has them."""

    def __init__(self, name: str, groups: tuple[int, int], dead_letters: bool = False) -> None:
        super().__init__(name, groups, dead_letters)
        self.made: list[bytes] = []
        """Blobs that are in no production yet."""
        self.first = INFINITY
        """The smallest time of an output in them."""
        self.kept: dict[int, Outputs] = {}
        """Per production, what the consumer may not have."""
        self.processed = 0

    def hold(
        self, sink: int, labels: Labels, values: Values, signs: Signs, packed: bytes = b""
    ) -> None:
        assert signs is None or signs == [1], "only an ordered barrier can take outputs back"
        self.check_failure(sink, labels[0], values[0])
        self.first = min(self.first, min(labels)[0])
        self.made.append(to_blob(labels, sink, values, packed))

    def progress(self, processed: int) -> None:
        self.processed = max(self.processed, processed)

    def seal(self, production: int) -> Outputs | None:
        """The outputs of a production, if it has any, to be made durable with it."""
        if not self.made:
            return None
        outputs = self.kept[production] = self.first, tuple(self.made)
        self.first, self.made = INFINITY, []
        return outputs

    def commit(self, production: int) -> None:
        """Everything up to this production is durable: its outputs may leave."""
        for number, (_, blobs) in self.kept.items():
            if self.moved_to < number <= production:
                for blob in blobs:
                    self.checksum = running_checksum(self.checksum, blob)
                    self.ready.append((number, blob))
        self.moved_to = production

    def restore(self, production: int, kept: Mapping[int, Outputs]) -> None:
        """Begin after a durable production; outputs of some are kept, in order."""
        self.kept = dict(kept)
        self.commit(production)

    def last(self, t_last: int, checksum: int, blobs: tuple[bytes, ...]) -> None:
        if t_last > self.moved_to:
            raise StateMismatch(
                f"{self.name}: the consumer has outputs of production {t_last}, but the node has "
                f"none after {self.moved_to}: the state directory is an old copy, or another "
                f"run's. {ADVICE}"
            )
        super().last(t_last, checksum, blobs)

    def forget(self) -> list[int]:
        """The productions whose outputs the consumer has by now; they are kept no longer."""
        gone = [number for number in self.kept if number <= self.t_last]
        for number in gone:
            del self.kept[number]
        return gone

    @property
    def empty(self) -> bool:
        return super().empty and not self.made and all(n <= self.t_last for n in self.kept)

    @property
    def delivered(self) -> int:
        # Below what is processed everywhere no output is made any more, and all are durable.
        kept = [first for number, (first, _) in self.kept.items() if number > self.t_last]
        return min([self.processed, *kept])
