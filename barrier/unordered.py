"""Barriers of the policies without label order, which benchmarks compare with `exactly-once`.

Outputs leave in the order of arrival. Inputs: outputs of operators, the consumer's answers, the
processed frontier, ends of epochs or productions, and commits. Results: bundles, and outputs to
make durable. Each batch of outputs is encoded as one blob when it arrives.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from driftline.barrier.barrier import ADVICE, Barrier
from driftline.engine.errors import StateMismatch
from driftline.engine.labels import INFINITY
from driftline.engine.operators.steps import Signs, Values
from driftline.engine.snapshots.ledger import Outputs
from driftline.engine.wire.bundles import running_checksum, to_blob
from driftline.engine.wire.label_columns import Labels


class UnackedFrontiers:
    """Queue of processed frontiers that the consumer has not reached yet.

    A barrier has a new queue in each incarnation. A unit is a bundle, an epoch or a production.
    Inputs: each processed frontier, with the last unit that may contain an output older than this
    frontier; the last unit that the consumer has stored. Result: the time below which the consumer
    has all outputs. Invariant: this time never decreases; the queued frontiers and their units
    increase.

        >>> frontiers = UnackedFrontiers()
        >>> frontiers.add(10, unit=1)
        >>> frontiers.add(20, unit=2)
        >>> frontiers.delivered(stored=1)
        10

    Outputs above a frontier do not delay it; otherwise the result would not advance under load.
    Memory: at most one frontier for each unit.
    """

    def __init__(self) -> None:
        self._waiting: deque[tuple[int, int]] = deque()
        """(unit, frontier): a consumer that has the unit has all outputs below the frontier."""
        self._delivered = 0

    def add(self, processed: int, unit: int) -> None:
        """Record that units up to this one contain all outputs below a time."""
        waiting = self._waiting
        if waiting and processed <= waiting[-1][1]:
            return
        if waiting and unit <= waiting[-1][0]:
            unit = waiting.pop()[0]
        waiting.append((unit, processed))

    def delivered(self, stored: int) -> int:
        """Return the time below which a consumer with all units up to `stored` has all outputs."""
        waiting = self._waiting
        while waiting and waiting[0][0] <= stored:
            self._delivered = max(self._delivered, waiting.popleft()[1])
        return self._delivered


class ArrivalBarrier(Barrier):
    """Base of the barriers without label order."""

    def __init__(self, name: str, groups: tuple[int, int], dead_letters: bool = False) -> None:
        super().__init__(name, groups, dead_letters)
        self._unacked = UnackedFrontiers()

    def add_outputs(
        self, sink: int, labels: Labels, values: Values, signs: Signs, packed: bytes = b""
    ) -> None:
        assert signs is None or signs == [1], "only an ordered barrier can retract outputs"
        self.check_failure(sink, labels[0], values[0])
        self._add_blob(to_blob(labels, sink, values, packed), labels)

    def _add_blob(self, blob: bytes, labels: Labels) -> None:
        """Take the blob of the outputs with these labels."""
        raise NotImplementedError

    def record_processed(self, processed: int) -> None:
        self._unacked.add(processed, self._newest_unit)

    @property
    def _newest_unit(self) -> int:
        """The last unit that may contain an output received so far."""
        return self.released_up_to

    @property
    def delivered(self) -> int:
        return self._unacked.delivered(self.stored_up_to) if self.connected else 0


class ImmediateBarrier(ArrivalBarrier):
    """Barrier of `none` and `at-least-once`: outputs leave at once.

    Invariant: the number of a bundle is its t_last, and grows by one per bundle; an output gets the
    number of its bundle on arrival. After a recovery the barrier does not filter replayed outputs,
    so at-least-once may deliver outputs twice. Under `none` nothing is replayed, so outputs may be
    lost.
    """

    def __init__(self, name: str, groups: tuple[int, int], dead_letters: bool = False) -> None:
        super().__init__(name, groups, dead_letters)
        self._last_bytes = 0
        """Number of bytes queued for the newest bundle."""

    def _add_blob(self, blob: bytes, labels: Labels) -> None:
        if not self.queued or self._last_bytes >= self.bundle_bytes:
            self.released_up_to += 1
            self._last_bytes = 0
        self._last_bytes += len(blob)
        self._queue(self.released_up_to, blob)

    def handle_last_bundle(self, t_last: int, checksum: int, blobs: tuple[bytes, ...]) -> None:
        super().handle_last_bundle(t_last, checksum, blobs)
        self.released_up_to = max(self.released_up_to, self.t_last)


class EpochBarrier(ArrivalBarrier):
    """Barrier of two-phase: outputs wait for the commit of the epoch that produced them.

    Follows Flink's transactional sinks (paper "State management in Apache Flink", section 4.2).
    `seal` ends the epoch of a chain when the chain's inputs are aligned. `pre_commit` returns the
    outputs of the epoch for the node's part of the snapshot. `commit` releases them after the
    coordinator's decision. t_last is the number of the last epoch that the consumer has, so a
    repeated commit changes nothing. Invariant: an output leaves only after the commit of its epoch,
    and only once.

    Outputs of an epoch are not sorted by label: sorting would block the loop for 0.1 ms per
    document, and the policy promises no order.
    """

    unit = "epoch"

    def __init__(self, name: str, groups: tuple[int, int], dead_letters: bool = False) -> None:
        super().__init__(name, groups, dead_letters)
        self.current_port = 0
        """Port of the chain whose outputs arrive next. Chains end an epoch independently of each
        other."""
        self.open_blobs: dict[int, list[bytes]] = {}
        """Port of a chain -> the blobs of its open epoch."""
        self.ended_blobs: dict[int, list[bytes]] = {}
        """Epoch that at least one chain has ended, and that is not pre-committed -> the blobs of
        the chains that have ended it."""
        self.unsealed_bytes = 0
        """Bytes of the blobs in `open_blobs` and `ended_blobs`."""
        self.pre_committed: dict[int, tuple[bytes, ...]] = {}
        """Pre-committed epoch that is not yet committed -> its blobs."""
        self._ended = 0
        """The newest epoch that at least one chain has ended."""

    def _add_blob(self, blob: bytes, labels: Labels) -> None:
        self.unsealed_bytes += len(blob)
        self.open_blobs.setdefault(self.current_port, []).append(blob)

    @property
    def _newest_unit(self) -> int:
        if self.open_blobs:
            return self._ended + 1  # the newest epoch that a chain may have open
        return max(self.ended_blobs or self.pre_committed, default=self.released_up_to)

    def seal(self, port: int, epoch: int) -> None:
        """End the open epoch of the chain that begins at a port."""
        self._ended = max(self._ended, epoch)
        self.ended_blobs.setdefault(epoch, []).extend(self.open_blobs.pop(port, ()))

    def pre_commit(self, epoch: int) -> tuple[tuple[int, tuple[bytes, ...]], ...]:
        """Return (epoch, blobs) of the outputs to make durable before the node reports `Prepared`.

        Includes earlier epochs whose commit this barrier has not seen. Each epoch keeps its number,
        as t_last shows which epochs the consumer has. Precondition: all chains have ended `epoch`.
        """
        if blobs := self.ended_blobs.pop(epoch, []):
            self.unsealed_bytes -= sum(map(len, blobs))
            self.pre_committed[epoch] = tuple(blobs)
        return tuple(sorted(self.pre_committed.items()))

    def restore(self, epoch: int, pre_committed: object) -> None:
        """Start after a committed epoch.

        `pre_committed`: the result of `pre_commit` for that epoch; the consumer may lack some of
        these outputs.
        """
        self.released_up_to = self._ended = epoch
        if isinstance(pre_committed, tuple):
            self.pre_committed = dict(pre_committed)
            self.commit(epoch)

    def handle_last_bundle(self, t_last: int, checksum: int, blobs: tuple[bytes, ...]) -> None:
        if t_last > self.released_up_to:
            raise StateMismatch(
                f"{self.name}: the consumer has outputs of epoch {t_last}, but only "
                f"{self.released_up_to} epochs are committed: the state directory is an old copy, "
                f"or another run's. {ADVICE}"
            )
        super().handle_last_bundle(t_last, checksum, blobs)

    def commit(self, epoch: int) -> None:
        """Release the outputs up to an epoch that the coordinator committed. May be repeated."""
        self.released_up_to = max(self.released_up_to, epoch)
        for number in [number for number in sorted(self.pre_committed) if number <= epoch]:
            for blob in self.pre_committed.pop(number):
                self.checksum = running_checksum(self.checksum, blob)
                if number > self.t_last:
                    self._queue(number, blob)

    @property
    def all_stored(self) -> bool:
        return super().all_stored and not (
            self.open_blobs or self.ended_blobs or self.pre_committed
        )


class ProductionBarrier(ArrivalBarrier):
    """Barrier of strong-productions: outputs leave once their production is durable.

    Follows MillWheel's productions (papers "MillWheel", section 6.1, and "Delivery, consistency,
    and determinism", section IV-A). A production is what a node commits in one atomic write:
    changes of state and outputs. `seal` returns its outputs for that write. `commit` releases
    durable outputs, in the order of productions. t_last is the number of the last production that
    the consumer has. Invariant: an output leaves only after it is durable, and the node stores the
    output until the consumer has it. So after a failure, every durable output that the consumer
    lacks is in the node's store.
    """

    unit = "production"

    def __init__(self, name: str, groups: tuple[int, int], dead_letters: bool = False) -> None:
        super().__init__(name, groups, dead_letters)
        self.unsealed: list[bytes] = []
        """Blobs that belong to no production yet."""
        self.unsealed_from = INFINITY
        """The smallest time of an output in `unsealed`."""
        self.undelivered: dict[int, Outputs] = {}
        """Production -> (smallest time of an output, blobs), while the consumer may lack them."""
        self.processed = 0
        """The time below which all nodes have processed all elements."""

    def _add_blob(self, blob: bytes, labels: Labels) -> None:
        self.unsealed_from = min(self.unsealed_from, min(labels)[0])
        self.unsealed.append(blob)

    def record_processed(self, processed: int) -> None:
        self.processed = max(self.processed, processed)

    def seal(self, production: int) -> Outputs | None:
        """End a production. Return (smallest time of an output, blobs) to make durable.

        Return None if the production has no outputs.
        """
        if not self.unsealed:
            return None
        outputs = self.undelivered[production] = self.unsealed_from, tuple(self.unsealed)
        self.unsealed_from, self.unsealed = INFINITY, []
        return outputs

    def commit(self, production: int) -> None:
        """Release the outputs of all productions up to this one. Precondition: they are durable."""
        for number, (_, blobs) in self.undelivered.items():
            if self.released_up_to < number <= production:
                for blob in blobs:
                    self.checksum = running_checksum(self.checksum, blob)
                    self._queue(number, blob)
        self.released_up_to = production

    def restore(self, production: int, undelivered: Mapping[int, Outputs]) -> None:
        """Start after a durable production.

        `undelivered`: value for the attribute of this name, read from the store, in order.
        """
        self.undelivered = dict(undelivered)
        self.commit(production)

    def handle_last_bundle(self, t_last: int, checksum: int, blobs: tuple[bytes, ...]) -> None:
        if t_last > self.released_up_to:
            raise StateMismatch(
                f"{self.name}: the consumer has outputs of production {t_last}, but the node has "
                f"none after {self.released_up_to}: the state directory is an old copy, or another "
                f"run's. {ADVICE}"
            )
        super().handle_last_bundle(t_last, checksum, blobs)

    def drop_delivered(self) -> list[int]:
        """Drop the outputs that the consumer has. Return the numbers of their productions."""
        delivered = [number for number in self.undelivered if number <= self.t_last]
        for number in delivered:
            del self.undelivered[number]
        return delivered

    @property
    def all_stored(self) -> bool:
        all_delivered = all(number <= self.t_last for number in self.undelivered)
        return super().all_stored and not self.unsealed and all_delivered

    @property
    def delivered(self) -> int:
        # Nodes acknowledge elements only after their production is durable, so no output below
        # `processed` is in `unsealed`.
        waiting = [time for number, (time, _) in self.undelivered.items() if number > self.t_last]
        return min([self.processed, *waiting])
