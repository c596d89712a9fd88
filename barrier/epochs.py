"""The barrier of two-phase: outputs wait for the epoch that they were made in to be committed.

As Flink's transactional sinks do (State management in Apache Flink, section 4.2; thesis, 4.1.3):
`seal` ends the epoch of a sink's chain when its inputs are aligned, the sealed outputs become
durable with the node's part of the snapshot (pre-commit), and `commit` lets them go once the
coordinator has decided. t_last is the number of the last epoch that the consumer has, which
makes a repeated commit harmless.
"""

from __future__ import annotations

from driftline.barrier.barrier import ADVICE, Barrier
from driftline.engine.errors import StateMismatch
from driftline.engine.labels import INFINITY
from driftline.engine.order.steps import Signs, Values
from driftline.engine.wire.bundles import running_checksum, to_blob
from driftline.engine.wire.label_columns import Labels

Output = tuple[tuple[int, ...], int, object]


class EpochBarrier(Barrier):
    """Holds outputs per epoch. One epoch at a time is open, at most one is sealed."""

    def __init__(self, name: str, groups: tuple[int, int], dead_letters: bool = False) -> None:
        super().__init__(name, groups, dead_letters)
        self.chain = 0
        """The port whose chain is at work: chains do not pass from epoch to epoch together."""
        self.open: dict[int, list[Output]] = {}
        """Per chain, the outputs of its current epoch."""
        self.sealing: dict[int, list[Output]] = {}
        """Outputs of chains that have ended an epoch which others have not."""
        self.sealed: dict[int, tuple[bytes, ...]] = {}
        """Outputs of epochs that are pre-committed and not yet committed."""
        self.complete = False

    def hold(
        self, sink: int, labels: Labels, values: Values, signs: Signs, packed: bytes = b""
    ) -> None:
        assert signs is None or signs == [1], "only an ordered barrier can take outputs back"
        self.check_failure(sink, labels[0], values[0])
        outputs = self.open.setdefault(self.chain, [])
        outputs += [(label, sink, value) for label, value in zip(labels, values, strict=True)]

    def progress(self, processed: int) -> None:
        self.complete = processed >= INFINITY

    def seal(self, chain: int, epoch: int) -> None:
        """A chain has ended an epoch."""
        self.sealing.setdefault(epoch, []).extend(self.open.pop(chain, ()))

    def pre_commit(self, epoch: int) -> tuple[tuple[int, tuple[bytes, ...]], ...]:
        """All chains have: the outputs to make durable before the epoch counts as prepared.

        They include those of earlier epochs that this barrier does not know to be committed; each
        keeps its number, by which the consumer's t_last tells what it has already.
        """
        outputs = sorted(self.sealing.pop(epoch, ()), key=lambda output: output[0])
        if outputs:
            labels, sinks, values = zip(*outputs, strict=True)
            self.sealed[epoch] = (to_blob(list(labels), sinks, values),)
        return tuple(sorted(self.sealed.items()))

    def restore(self, epoch: int, pre_committed: object) -> None:
        """Begin after a committed epoch, whose outputs may not all have left."""
        self.moved_to = epoch
        if isinstance(pre_committed, tuple):
            self.sealed = dict(pre_committed)
            self.commit(epoch)

    def last(self, t_last: int, checksum: int, blobs: tuple[bytes, ...]) -> None:
        if t_last > self.moved_to:
            raise StateMismatch(
                f"{self.name}: the consumer has outputs of epoch {t_last}, but only "
                f"{self.moved_to} epochs are committed: the state directory is an old copy, or "
                f"another run's. {ADVICE}"
            )
        super().last(t_last, checksum, blobs)

    def commit(self, epoch: int) -> None:
        """The epoch is decided: its outputs may leave."""
        self.moved_to = max(self.moved_to, epoch)
        for number in [number for number in sorted(self.sealed) if number <= epoch]:
            for blob in self.sealed.pop(number):
                self.checksum = running_checksum(self.checksum, blob)
                if number > self.t_last:
                    self.ready.append((number, blob))

    @property
    def empty(self) -> bool:
        held = (*self.open.values(), *self.sealing.values(), *self.sealed.values())
        return super().empty and not any(held)

    @property
    def delivered(self) -> int:
        return INFINITY if self.empty and self.complete and self.connected else 0
