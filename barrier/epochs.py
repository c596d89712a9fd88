"""The barrier of two-phase: outputs wait until the epoch in which they were made is committed.

As Flink's transactional sinks do (State management in Apache Flink, section 4.2; thesis, 4.1.3):
`seal` ends the epoch of a chain when its inputs are aligned, `pre_commit` gives the outputs of the
epoch to the node's part of the snapshot, and `commit` releases them once the coordinator has
decided. t_last is the number of the last epoch that the consumer has, so a repeated commit changes
nothing.

Takes: outputs, ends of epochs per chain, commits. Gives: bundles, and outputs to make durable.
Invariant: an output leaves only after its epoch was committed, and then once.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from driftline.barrier.barrier import ADVICE, Barrier
from driftline.barrier.pending import Pending
from driftline.engine.errors import StateMismatch
from driftline.engine.labels import INFINITY
from driftline.engine.order.steps import Signs, Values, by_time
from driftline.engine.wire.bundles import running_checksum, to_blob
from driftline.engine.wire.codec import pack_rows
from driftline.engine.wire.label_columns import Labels

LABEL_BYTES = 100
"""Bytes of memory that the label of an output takes, about, unless labels are a column."""


@dataclass(slots=True)
class Epoch:
    """Outputs of an epoch, packed."""

    pending: dict[int, Pending] = field(default_factory=dict)
    """Time -> its outputs."""
    size: int = 0
    """Bytes of memory that they take, about."""

    def add(self, time: int, sink: int, labels: Labels, packed: bytes) -> None:
        """Add outputs of one time. `packed`: their payloads."""
        self.pending.setdefault(time, Pending()).add(sink, labels, [], None, packed)
        self.size += len(packed) + (LABEL_BYTES * len(labels) if isinstance(labels, list) else 0)

    def join(self, other: Epoch) -> None:
        """Take all outputs of another chain."""
        self.size += other.size
        for time, pending in other.pending.items():
            self.pending.setdefault(time, Pending()).join(pending)

    def blobs(self) -> tuple[bytes, ...]:
        """The outputs in label order, a blob for each time."""
        return tuple(
            pending.packed_blob() or to_blob(*pending.outputs())
            for _, pending in sorted(self.pending.items())
        )


class EpochBarrier(Barrier):
    """Holds outputs per epoch. Each chain has one open epoch."""

    def __init__(self, name: str, groups: tuple[int, int], dead_letters: bool = False) -> None:
        super().__init__(name, groups, dead_letters)
        self.chain = 0
        """The port of the chain that makes the next outputs. Chains end an epoch one by one."""
        self.open: dict[int, Epoch] = {}
        """Chain -> the outputs of its open epoch."""
        self.sealing: dict[int, Epoch] = {}
        """Epoch -> the outputs of the chains that have ended it, while others have not."""
        self.sealed: dict[int, tuple[bytes, ...]] = {}
        """Epoch -> its blobs, pre-committed and not yet committed."""
        self.complete = False
        """Whether all elements of the run have been worked off, on all nodes."""

    def hold(
        self, sink: int, labels: Labels, values: Values, signs: Signs, packed: bytes = b""
    ) -> None:
        assert signs is None or signs == [1], "only an ordered barrier can take outputs back"
        self.check_failure(sink, labels[0], values[0])
        outputs = self.open.setdefault(self.chain, Epoch())
        for time, (of_time, payloads, _) in by_time((labels, values, None)):
            has_all = packed and len(of_time) == len(labels)
            outputs.add(time, sink, of_time, packed if has_all else pack_rows(payloads))

    def progress(self, processed: int) -> None:
        self.complete = processed >= INFINITY

    def seal(self, chain: int, epoch: int) -> None:
        """A chain has ended its open epoch."""
        if chain in self.open:
            self.sealing.setdefault(epoch, Epoch()).join(self.open.pop(chain))

    @property
    def unsealed_bytes(self) -> int:
        """Bytes of the outputs that wait for the end of their epoch."""
        return sum(epoch.size for epochs in (self.open, self.sealing) for epoch in epochs.values())

    def pre_commit(self, epoch: int) -> tuple[tuple[int, tuple[bytes, ...]], ...]:
        """Returns (epoch, blobs) of all outputs to make durable before the epoch is prepared.

        Earlier epochs are among them as long as this barrier does not know that they are committed.
        Each keeps its number: t_last says which of them the consumer has. Precondition: all chains
        have ended the epoch.
        """
        if epoch in self.sealing:
            self.sealed[epoch] = self.sealing.pop(epoch).blobs()
        return tuple(sorted(self.sealed.items()))

    def restore(self, epoch: int, pre_committed: object) -> None:
        """Start after a committed epoch.

        `pre_committed`: the result of its `pre_commit`; some of the outputs may not have left.
        """
        self.released_to = epoch
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
        return INFINITY if self.empty and self.complete and self.connected else 0
