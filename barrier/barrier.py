"""What all barriers share: the queue of bundles to the consumer, and t_last.

Takes outputs (`hold`), what the consumer says (`last`, `stored`), and what its policy goes by.
Gives bundles (`take_bundle`). Invariant: at most one bundle is unacknowledged, t_last grows from
bundle to bundle, and what the consumer has up to its t_last is never sent again: items and t_last
at the consumer always belong together (Delivery, consistency, and determinism, section V-A2).

t_last counts in the unit of the barrier: times of labels, numbers of epochs, or of bundles.
"""

from __future__ import annotations

from driftline.engine.errors import FunctionFailed, StateMismatch
from driftline.engine.flow.context import describe
from driftline.engine.labels import Label
from driftline.engine.order.steps import FAILURES, Signs, Values
from driftline.engine.wire.label_columns import Labels
from driftline.engine.wire.messages import Bundle

NOTHING = -1
"""The t_last of a consumer that has no bundle yet."""


ADVICE = (
    "Restore outputs and state from copies of the same moment, or begin anew: without the outputs, "
    "and without the state directory"
)


class Barrier:
    """Base of all barriers: holds outputs until they may leave, as blobs, in order."""

    def __init__(self, name: str, groups: tuple[int, int], dead_letters: bool = False) -> None:
        self.name = name
        self.dead_letters = dead_letters
        """Whether failures are outputs like others; otherwise a final one stops the run."""
        self.groups = groups
        self.ready: list[tuple[int, bytes]] = []
        """(time, blob) that may leave."""
        self.moved_to = NOTHING
        """Everything up to here is ready, outstanding, or at the consumer."""
        self.checksum = 0
        self.outstanding: Bundle | None = None
        self.t_last = NOTHING
        """The consumer has everything up to here."""
        self.due = NOTHING
        """The consumer had everything up to here when the snapshot was taken that we begin from."""
        self.connected = False
        self.stored_last = 0
        """Blobs in the bundle that was stored last."""

    def hold(
        self, sink: int, labels: Labels, values: Values, signs: Signs, packed: bytes = b""
    ) -> None:
        """Take outputs of a sink, or (sign -1) take them back.

        `packed`: the payloads in the wire format, if that is known.
        """
        raise NotImplementedError

    def advance(self, frontier: int) -> None:
        """Learn that every output with a smaller time is final: what this node itself finds, which
        means something in label order only.

        Raises FunctionFailed if one of them is a failure.
        """

    def progress(self, processed: int) -> None:
        """Learn that nothing with a smaller time needs any more work, on any node: what the master
        tells, and all that is known of it without label order."""

    def encode_ahead(self) -> bool:
        """Do some work that the next `advance` need not do then. Returns whether there was any."""
        return False

    @property
    def empty(self) -> bool:
        """Whether it holds nothing that the consumer does not have."""
        return not self.ready and self.outstanding is None

    @property
    def delivered(self) -> int:
        """The consumer has every output below this time."""
        raise NotImplementedError

    @property
    def delivering(self) -> int:
        """The t_last that the consumer has at least, once all is there that may leave by now."""
        if self.ready:
            return self.moved_to
        return self.t_last if self.outstanding is None else self.outstanding.t_last

    def last(self, t_last: int, checksum: int, blobs: tuple[bytes, ...]) -> None:
        """Learn the consumer's last bundle: on recovery, and whenever the consumer comes back.

        Raises StateMismatch if it cannot be one of ours.
        """
        if not self.connected and t_last < self.due:
            raise StateMismatch(
                f"{self.name}: the consumer has outputs up to {t_last} only, but had those up to "
                f"{self.due} when the state was written that this run goes on from: outputs are "
                f"gone, or they are an old copy. {ADVICE}"
            )
        if self.connected and t_last < self.t_last:
            raise StateMismatch(
                f"{self.name}: the consumer has come back without outputs that it had stored "
                f"(t_last {t_last} instead of {self.t_last}): restore them"
            )
        self.t_last = max(self.t_last, t_last)
        self.connected = True
        bundle, self.outstanding = self.outstanding, None
        if bundle is not None and bundle.t_last > self.t_last:
            self.outstanding = bundle
        self.ready = [(time, blob) for time, blob in self.ready if time > self.t_last]

    def stored(self, t_last: int) -> None:
        """Learn that the consumer has stored the bundle that ended there."""
        if self.outstanding is not None and self.outstanding.t_last == t_last:
            self.stored_last = len(self.outstanding.blobs)
            self.outstanding = None
            self.t_last = t_last

    def take_bundle(self, incarnation: int) -> Bundle | None:
        """The next bundle to send, if there is one and it may be sent now."""
        if not self.ready or self.outstanding is not None or not self.connected:
            return None
        blobs = tuple(blob for _, blob in self.ready)
        self.ready.clear()
        self.outstanding = Bundle(
            self.name, incarnation, self.groups, blobs, self.moved_to, self.checksum
        )
        return self.outstanding

    def check_failure(self, sink: int, label: Label, value: object) -> None:
        """Raises FunctionFailed for a final failure that nobody wants as a dead letter."""
        if sink == FAILURES and not self.dead_letters:
            assert isinstance(value, tuple)
            raise FunctionFailed(describe(label, value))

    def validate(self) -> None:
        """Assert the invariant."""
        times = [time for time, _ in self.ready]
        assert times == sorted(times), f"{self.name}: ready out of order: {times}"
        assert not times or times[0] > self.t_last, f"{self.name}: {times[0]} is delivered already"
        if self.outstanding is not None:
            assert self.outstanding.t_last > self.t_last
