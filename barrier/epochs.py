"""The barrier of two-phase: outputs wait until the epoch in which they were made is committed.

As Flink's transactional sinks do (State management in Apache Flink, section 4.2; thesis, 4.1.3):
`seal` ends the epoch of a chain when its inputs are aligned, `pre_commit` gives the outputs of the
epoch to the node's part of the snapshot, and `commit` releases them once the coordinator has
decided. t_last is the number of the last epoch that the consumer has, so a repeated commit changes
nothing.

Takes: outputs, ends of epochs per chain, commits. Gives: bundles, and outputs to make durable.
Invariant: an output leaves only after its epoch was committed, and then once.

Cost: that of `ImmediateBarrier`. A batch of outputs becomes a blob when it comes, and stays one, in
the order of arrival, which is all that the policy promises: to sort an epoch by label would hold up
the loop for a tenth of a millisecond per document.
"""

from __future__ import annotations

from driftline.barrier.awaited import Awaited
from driftline.barrier.barrier import ADVICE, Barrier
from driftline.engine.errors import StateMismatch
from driftline.engine.operators.steps import Signs, Values
from driftline.engine.wire.bundles import running_checksum, to_blob
from driftline.engine.wire.label_columns import Labels


class EpochBarrier(Barrier):
    """Holds outputs per epoch. Each chain has one open epoch."""

    unit = "epoch"

    def __init__(self, name: str, groups: tuple[int, int], dead_letters: bool = False) -> None:
        super().__init__(name, groups, dead_letters)
        self.chain = 0
        """The port of the chain that makes the next outputs. Chains end an epoch one by one."""
        self.open: dict[int, list[bytes]] = {}
        """Chain -> the blobs of its open epoch."""
        self.sealing: dict[int, list[bytes]] = {}
        """Epoch -> the blobs of the chains that have ended it, while others have not."""
        self.unsealed_bytes = 0
        """Bytes of the blobs in `open` and `sealing`."""
        self.sealed: dict[int, tuple[bytes, ...]] = {}
        """Epoch -> its blobs, pre-committed and not yet committed."""
        self._awaited = Awaited()
        self._ended = 0
        """The newest epoch that a chain has ended."""

    def hold(
        self, sink: int, labels: Labels, values: Values, signs: Signs, packed: bytes = b""
    ) -> None:
        assert signs is None or signs == [1], "only an ordered barrier can take outputs back"
        self.check_failure(sink, labels[0], values[0])
        blob = to_blob(labels, sink, values, packed)
        self.unsealed_bytes += len(blob)
        self.open.setdefault(self.chain, []).append(blob)

    def progress(self, processed: int) -> None:
        self._awaited.add(processed, self._last_epoch)

    @property
    def _last_epoch(self) -> int:
        """No output that this barrier has taken is in a later epoch."""
        if self.open:
            return self._ended + 1  # a chain may have begun it, while others are in the one before
        return max(self.sealing or self.sealed, default=self.released_to)

    def seal(self, chain: int, epoch: int) -> None:
        """A chain has ended its open epoch."""
        self._ended = max(self._ended, epoch)
        self.sealing.setdefault(epoch, []).extend(self.open.pop(chain, ()))

    def pre_commit(self, epoch: int) -> tuple[tuple[int, tuple[bytes, ...]], ...]:
        """Returns (epoch, blobs) of all outputs to make durable before the epoch is prepared.

        Earlier epochs are among them as long as this barrier does not know that they are committed.
        Each keeps its number: t_last says which of them the consumer has. Precondition: all chains
        have ended the epoch.
        """
        if blobs := self.sealing.pop(epoch, []):
            self.unsealed_bytes -= sum(map(len, blobs))
            self.sealed[epoch] = tuple(blobs)
        return tuple(sorted(self.sealed.items()))

    def restore(self, epoch: int, pre_committed: object) -> None:
        """Start after a committed epoch.

        `pre_committed`: the result of its `pre_commit`; some of the outputs may not have left.
        """
        self.released_to = self._ended = epoch
        if isinstance(pre_committed, tuple):
            self.sealed = dict(pre_committed)
            self.commit(epoch)

    def last(self, t_last: int, checksum: int, blobs: tuple[bytes, ...]) -> None:
        if t_last > self.released_to:
            raise StateMismatch(
                f"{self.name}: the consumer has outputs of epoch {t_last}, but only "
                f"{self.released_to} epochs are committed: the state directory is an old copy, or "
                f"another run's. {ADVICE}"
            )
        super().last(t_last, checksum, blobs)

    def commit(self, epoch: int) -> None:
        """The coordinator has committed an epoch: its outputs may leave. May be repeated."""
        self.released_to = max(self.released_to, epoch)
        for number in [number for number in sorted(self.sealed) if number <= epoch]:
            for blob in self.sealed.pop(number):
                self.checksum = running_checksum(self.checksum, blob)
                if number > self.t_last:
                    self._queue(number, blob)

    @property
    def empty(self) -> bool:
        return super().empty and not (self.open or self.sealing or self.sealed)

    @property
    def delivered(self) -> int:
        return self._awaited.delivered(self.stored_units) if self.connected else 0
