"""Base of all barriers: the queue of bundles to the consumer, and t_last.

Inputs: outputs (`add_outputs`), the consumer's answers (`handle_last_bundle`, `mark_stored`), and
frontiers (`advance` or `record_processed`) or commits, depending on the policy. Outputs: bundles
(`take_bundle`). Invariant: at most one bundle is unacknowledged, t_last grows from bundle to
bundle, and no output up to the consumer's t_last is sent again. Precondition: the consumer stores
items and t_last in one atomic step (paper "Delivery, consistency, and determinism", section V-A2).

A consumer that merges the outputs of several barriers needs the progress of each barrier, even of
one without outputs. With `reports_progress`, a barrier that has nothing to send therefore reports
progress in an empty bundle (`take_progress_report`). The consumer does not acknowledge these
reports: the next bundle or report replaces a lost one.

t_last counts in the unit of the barrier: times of labels, or numbers of epochs, of productions (see
`barrier.unordered`) or of bundles. All blobs of one unit are in one bundle. A bundle takes further
units until it has `bundle_bytes` bytes.
"""

from __future__ import annotations

from collections import deque

from driftline.engine.errors import FunctionFailed, StateMismatch
from driftline.engine.labels import Label
from driftline.engine.operators.context import describe_failure
from driftline.engine.operators.steps import FAILURES, Signs, Values
from driftline.engine.wire.label_columns import Labels
from driftline.engine.wire.messages import Bundle

NO_T_LAST = -1
"""The t_last of a consumer that has stored no bundle."""

BUNDLE_BYTES = 1 << 22
"""The default of `Barrier.bundle_bytes`."""

ADVICE = (
    "Restore outputs and state from copies of the same moment (for a service, its whole state "
    "directory), or remove both and start over"
)


class Barrier:
    """Base of all barriers: holds outputs as blobs, in order, until they may leave.

    `groups`: the first and the last key group of the node; `dead_letters`: whether a failure is
    delivered like an output. If not, the first final failure ends the run.
    """

    unit = "bundle"
    """Human-readable unit of t_last."""

    def __init__(self, name: str, groups: tuple[int, int], dead_letters: bool = False) -> None:
        self.name = name
        self.dead_letters = dead_letters
        self.groups = groups
        self.bundle_bytes = BUNDLE_BYTES
        """A bundle takes no further unit once its blobs have this many bytes."""
        self.reports_progress = False
        """Whether to send progress reports to the consumer while there are no outputs."""
        self._reported_up_to = NO_T_LAST
        """t_last of the last progress report since the consumer connected, or the consumer's t_last
        at that moment."""
        self.queued: deque[tuple[int, bytes, int]] = deque()
        """(unit, blob, running checksum including this blob) of released outputs that are in no
        bundle yet."""
        self.waiting_bytes = 0
        """Bytes of the blobs in `ready` and `outstanding`, which wait only for the consumer."""
        self.released_up_to = NO_T_LAST
        """All outputs up to this unit are in `ready`, in `outstanding`, or at the consumer."""
        self.checksum = 0
        """Running checksum over all released blobs."""
        self.outstanding: Bundle | None = None
        """The bundle that the consumer has not acknowledged yet; None if there is none."""
        self.t_last = NO_T_LAST
        """The consumer has all outputs up to this unit."""
        self.expected_t_last = NO_T_LAST
        """The consumer's t_last when the snapshot that this incarnation restored was taken."""
        self.connected = False
        """Whether the consumer has answered in this incarnation."""
        self.stored_blob_count = 0
        """Number of blobs in the last bundle that the consumer acknowledged."""

    def add_outputs(
        self, sink: int, labels: Labels, values: Values, signs: Signs, packed: bytes = b""
    ) -> None:
        """Take outputs of a sink; tombstones (sign -1) retract earlier ones.

        `packed`: the payloads in the wire format, if they are packed already. Without label order,
        raises FunctionFailed for a failure that is not a dead letter.
        """
        raise NotImplementedError

    def advance(self, frontier: int) -> None:
        """Release all outputs below a time, which are final according to the node's tracker.

        Without label order, do nothing. Raises FunctionFailed if a released output is a failure and
        not a dead letter.
        """

    def record_processed(self, processed: int) -> None:
        """Record that all nodes have processed all elements below a time.

        The master's tracker determines this time. With label order, do nothing.
        """

    def trim_history(self, frontier: int) -> None:
        """Drop history that only a snapshot as of a time before `frontier` would need.

        Precondition: no such snapshot will be taken. Without label order, do nothing.
        """

    def encode_ahead(self) -> bool:
        """Encode outputs of one time for a later `advance`. Return whether any were encoded."""
        return False

    @property
    def all_stored(self) -> bool:
        """Whether the consumer has all released outputs. Without label order: whether it has all
        outputs that this barrier has taken."""
        return not self.queued and self.outstanding is None

    @property
    def delivered(self) -> int:
        """The time below which the consumer has every output."""
        raise NotImplementedError

    @property
    def last_sent(self) -> int:
        """The largest unit that any incarnation may have sent. Precondition: `connected`."""
        return max(self.t_last, self.released_up_to)

    @property
    def stored_up_to(self) -> int:
        """The consumer has all outputs up to this unit. Unlike t_last, it counts released units
        without outputs."""
        has_unstored = self.queued or self.outstanding is not None
        return self.t_last if has_unstored else max(self.t_last, self.released_up_to)

    @property
    def target_t_last(self) -> int:
        """The smallest t_last with which the consumer has all outputs released so far."""
        if self.queued:
            return self.released_up_to
        return self.t_last if self.outstanding is None else self.outstanding.t_last

    @property
    def stored_summary(self) -> str:
        """Human-readable summary of the outputs that the consumer has."""
        if self.t_last == NO_T_LAST:
            return "no outputs yet"
        return self._summarise(self.t_last)

    def _summarise(self, t_last: int) -> str:
        if t_last == NO_T_LAST:
            return "no outputs"
        return f"outputs up to {self._format_t_last(t_last)}"

    def _format_t_last(self, t_last: int) -> str:
        return f"{self.unit} {t_last}"

    def handle_last_bundle(self, t_last: int, checksum: int, blobs: tuple[bytes, ...]) -> None:
        """Process the consumer's last bundle, on recovery and when a consumer reconnects.

        `t_last`, `checksum`, `blobs`: fields of the bundle; NO_T_LAST, 0 and () if there is none.
        Raises StateMismatch if the bundle contradicts the snapshot or an earlier answer.
        """
        if not self.connected and t_last < self.expected_t_last:
            raise StateMismatch(
                f"{self.name}: the consumer has {self._summarise(t_last)}, but had "
                f"{self._summarise(self.expected_t_last)} when the snapshot that is now restored "
                f"was written: outputs were removed, or they are an old copy. {ADVICE}"
            )
        if self.connected and t_last < self.t_last:
            raise StateMismatch(
                f"{self.name}: the consumer has reconnected without outputs that it had stored "
                f"(t_last {t_last} instead of {self.t_last}): restore the outputs"
            )
        self.t_last = max(self.t_last, t_last)
        # A consumer that restarted may have lost the last progress report: send another.
        self._reported_up_to = t_last
        self.connected = True
        bundle, self.outstanding = self.outstanding, None
        if bundle is not None and bundle.t_last > self.t_last:
            self.outstanding = bundle
        self.queued = deque(entry for entry in self.queued if entry[0] > self.t_last)
        self.waiting_bytes = self._count_waiting_bytes()

    def mark_stored(self, t_last: int) -> None:
        """Mark the bundle with this t_last as stored. Do nothing unless it is outstanding."""
        if self.outstanding is not None and self.outstanding.t_last == t_last:
            self.stored_blob_count = len(self.outstanding.blobs)
            self.waiting_bytes -= sum(map(len, self.outstanding.blobs))
            self.outstanding = None
            self.t_last = t_last

    def take_bundle(self, incarnation: int) -> Bundle | None:
        """Return a bundle of released outputs, which is outstanding from then on.

        Return None if there are no such outputs, if a bundle is outstanding already, or if the
        consumer has not answered yet.
        """
        queued = self.queued
        if not queued or self.outstanding is not None or not self.connected:
            return None
        blobs: list[bytes] = []
        size, t_last, checksum = 0, NO_T_LAST, 0
        while queued and (size < self.bundle_bytes or queued[0][0] == t_last):
            t_last, blob, checksum = queued.popleft()
            blobs.append(blob)
            size += len(blob)
        if not queued:
            t_last, checksum = self.released_up_to, self.checksum
        self.outstanding = Bundle(
            self.name, incarnation, self.groups, tuple(blobs), t_last, checksum
        )
        return self.outstanding

    def take_progress_report(self, incarnation: int) -> Bundle | None:
        """Return an empty bundle, which reports that there are no other outputs up to its t_last.

        Return None if a bundle or a report with this t_last was sent already, or if the consumer
        lacks outputs, has not answered yet, or needs no reports. The consumer does not acknowledge
        the report.
        """
        if not self.reports_progress or not self.connected or not self.all_stored:
            return None
        if self.released_up_to <= max(self.t_last, self._reported_up_to):
            return None
        self._reported_up_to = self.released_up_to
        header = self.name, incarnation, self.groups
        return Bundle(*header, (), self.released_up_to, self.checksum)

    def _queue(self, unit: int, blob: bytes) -> None:
        """Add a blob to `ready`. `unit`: the blob's time, epoch, production or bundle number."""
        self.queued.append((unit, blob, self.checksum))
        self.waiting_bytes += len(blob)

    def _count_waiting_bytes(self) -> int:
        """Compute `waiting_bytes` from scratch."""
        outstanding = self.outstanding.blobs if self.outstanding is not None else ()
        return sum(map(len, outstanding)) + sum(len(blob) for _, blob, _ in self.queued)

    def check_failure(self, sink: int, label: Label, value: object) -> None:
        """Raise FunctionFailed if a final output is a failure that is not a dead letter."""
        if sink == FAILURES and not self.dead_letters:
            assert isinstance(value, tuple)
            raise FunctionFailed(describe_failure(label, value))

    def validate(self) -> None:
        """Assert the invariants of the queue."""
        units = [unit for unit, _, _ in self.queued]
        assert units == sorted(units), f"{self.name}: released out of order: {units}"
        assert not units or units[0] > self.t_last, f"{self.name}: {units[0]} is delivered already"
        if self.outstanding is not None:
            assert self.outstanding.t_last > self.t_last
            assert not units or units[0] > self.outstanding.t_last
        assert self.waiting_bytes == self._count_waiting_bytes()
