"""The base of all barriers: the queue of bundles to the consumer, and t_last.

Takes: outputs (`hold`), the consumer's answers (`last`, `stored`), and frontiers (`advance` or
`progress`) or commits, as the policy demands. Gives: bundles (`take_bundle`). Invariant: at most
one bundle is unacknowledged, t_last grows from bundle to bundle, and no output up to the consumer's
t_last is sent again: items and t_last at the consumer always belong together (Delivery,
consistency, and determinism, section V-A2).

A consumer that merges the outputs of several barriers has to know how far each of them is, also
where it has no outputs: with `tells`, a barrier that has nothing to send gives an empty bundle when
that has grown (`take_passed`). It needs no answer, as a later one says more.

t_last counts in the unit of the barrier: times of labels, or numbers of epochs, of productions or
of bundles. All blobs of one unit are in one bundle. A bundle of several units is bounded in bytes:
more outputs wait for the next one.
"""

from __future__ import annotations

from collections import deque

from driftline.engine.errors import FunctionFailed, StateMismatch
from driftline.engine.labels import Label
from driftline.engine.operators.context import describe
from driftline.engine.operators.steps import FAILURES, Signs, Values
from driftline.engine.wire.label_columns import Labels
from driftline.engine.wire.messages import Bundle

NOTHING = -1
"""The t_last of a consumer that has no bundle yet."""

BUNDLE_BYTES = 1 << 22
"""The default of `Barrier.bundle_bytes`."""

ADVICE = (
    "Restore outputs and state from copies of the same moment (a service: its whole state "
    "directory, which has both), or begin anew without both"
)


class Barrier:
    """Base of all barriers: holds outputs until they may leave, as blobs, in order.

    `groups`: the first and the last key group of the node; `dead_letters`: whether failures are
    outputs like others; otherwise the first final failure ends the run.
    """

    unit = "bundle"
    """What t_last is the number of, for people."""

    def __init__(self, name: str, groups: tuple[int, int], dead_letters: bool = False) -> None:
        self.name = name
        self.dead_letters = dead_letters
        self.groups = groups
        self.bundle_bytes = BUNDLE_BYTES
        """Bytes of blobs from which on a bundle takes no further unit."""
        self.tells = False
        """Whether the consumer is told how far the outputs are complete where there are none."""
        self._told_to = NOTHING
        self.ready: deque[tuple[int, bytes, int]] = deque()
        """(time, epoch or production; blob; checksum with it) of outputs that may leave and are in
        no bundle yet."""
        self.waiting_bytes = 0
        """Bytes of the blobs in `ready` and `outstanding`: only the consumer holds them up."""
        self.released_to = NOTHING
        """All outputs up to here are in `ready`, in `outstanding`, or at the consumer."""
        self.checksum = 0
        """Over all blobs that have been released."""
        self.outstanding: Bundle | None = None
        """The bundle that was sent and is not acknowledged."""
        self.t_last = NOTHING
        """The consumer has all outputs up to here."""
        self.expected_t_last = NOTHING
        """The consumer's t_last when the snapshot was taken from which this incarnation starts."""
        self.connected = False
        """Whether the consumer has answered in this incarnation."""
        self.stored_last = 0
        """The number of blobs in the newest bundle that the consumer has stored."""

    def hold(
        self, sink: int, labels: Labels, values: Values, signs: Signs, packed: bytes = b""
    ) -> None:
        """Take outputs of a sink; tombstones (sign -1) take earlier ones back.

        `packed`: the payloads in the wire format, if they are packed already. Without label order,
        raises FunctionFailed for a failure that is no dead letter.
        """
        raise NotImplementedError

    def advance(self, frontier: int) -> None:
        """All outputs below this time are final, by the node's own tracker. Without label order
        this does nothing.

        Raises FunctionFailed if one of them is a failure that is no dead letter.
        """

    def progress(self, processed: int) -> None:
        """All nodes have worked off all elements below this time, by the master's tracker. In
        label order this does nothing."""

    def settle(self, frontier: int) -> None:
        """No snapshot will be as of an earlier time than this. Without label order this does
        nothing."""

    def encode_ahead(self) -> bool:
        """Encode outputs of one time for a later `advance`. Returns whether there were any."""
        return False

    @property
    def empty(self) -> bool:
        """Whether the consumer has all outputs that the barrier has taken."""
        return not self.ready and self.outstanding is None

    @property
    def delivered(self) -> int:
        """The consumer has every output below this time."""
        raise NotImplementedError

    @property
    def left(self) -> int:
        """No output of a later unit has left, in any incarnation. Precondition: it is connected."""
        return max(self.t_last, self.released_to)

    @property
    def stored_units(self) -> int:
        """The consumer has all outputs of the units up to here, also where they have none."""
        waits = self.ready or self.outstanding is not None
        return self.t_last if waits else max(self.t_last, self.released_to)

    @property
    def delivering(self) -> int:
        """The least t_last of the consumer once it has stored all outputs released so far."""
        if self.ready:
            return self.released_to
        return self.t_last if self.outstanding is None else self.outstanding.t_last

    @property
    def stored_to(self) -> str:
        """What the consumer has, for people."""
        if self.t_last == NOTHING:
            return "no outputs yet"
        return f"outputs up to {self._in_words(self.t_last)}"

    def _in_words(self, t_last: int) -> str:
        return f"{self.unit} {t_last}"

    def last(self, t_last: int, checksum: int, blobs: tuple[bytes, ...]) -> None:
        """The consumer names its last bundle: on recovery, and whenever a consumer comes back.

        `t_last`, `checksum`, `blobs`: those of the bundle; NOTHING, 0 and () if there is none.
        Raises StateMismatch if the bundle does not fit the snapshot or an earlier answer.
        """
        if not self.connected and t_last < self.expected_t_last:
            raise StateMismatch(
                f"{self.name}: the consumer has outputs up to {t_last} only, but had outputs up to "
                f"{self.expected_t_last} when the snapshot was written that is now restored: "
                f"outputs were removed, or they are an old copy. {ADVICE}"
            )
        if self.connected and t_last < self.t_last:
            raise StateMismatch(
                f"{self.name}: the consumer has come back without outputs that it had stored "
                f"(t_last {t_last} instead of {self.t_last}): restore the outputs"
            )
        self.t_last = max(self.t_last, t_last)
        self._told_to = t_last  # what it was told without an answer may be lost with its process
        self.connected = True
        bundle, self.outstanding = self.outstanding, None
        if bundle is not None and bundle.t_last > self.t_last:
            self.outstanding = bundle
        self.ready = deque(entry for entry in self.ready if entry[0] > self.t_last)
        self.waiting_bytes = self._counted()

    def stored(self, t_last: int) -> None:
        """The consumer has stored the bundle with this t_last. Ignored unless it is outstanding."""
        if self.outstanding is not None and self.outstanding.t_last == t_last:
            self.stored_last = len(self.outstanding.blobs)
            self.waiting_bytes -= sum(map(len, self.outstanding.blobs))
            self.outstanding = None
            self.t_last = t_last

    def take_bundle(self, incarnation: int) -> Bundle | None:
        """The released outputs, as many as fit into a bundle; None if there are none, or while a
        bundle is outstanding."""
        ready = self.ready
        if not ready or self.outstanding is not None or not self.connected:
            return None
        blobs: list[bytes] = []
        size, t_last, checksum = 0, NOTHING, 0
        while ready and (size < self.bundle_bytes or ready[0][0] == t_last):
            t_last, blob, checksum = ready.popleft()
            blobs.append(blob)
            size += len(blob)
        if not ready:
            t_last, checksum = self.released_to, self.checksum
        self.outstanding = Bundle(
            self.name, incarnation, self.groups, tuple(blobs), t_last, checksum
        )
        return self.outstanding

    def take_passed(self, incarnation: int) -> Bundle | None:
        """An empty bundle: there are no outputs up to its t_last but those that the consumer has.

        None if that is known, is not so, or need not be told. It needs no answer.
        """
        if not self.tells or not self.connected or not self.empty:
            return None
        if self.released_to <= max(self.t_last, self._told_to):
            return None
        self._told_to = self.released_to
        told = self.name, incarnation, self.groups
        return Bundle(*told, (), self.released_to, self.checksum)

    def _queue(self, unit: int, blob: bytes) -> None:
        """A blob of this time, epoch, production or bundle may leave."""
        self.ready.append((unit, blob, self.checksum))
        self.waiting_bytes += len(blob)

    def _counted(self) -> int:
        """What `waiting_bytes` should be."""
        outstanding = self.outstanding.blobs if self.outstanding is not None else ()
        return sum(map(len, outstanding)) + sum(len(blob) for _, blob, _ in self.ready)

    def check_failure(self, sink: int, label: Label, value: object) -> None:
        """Raises FunctionFailed if a final output is a failure that is no dead letter."""
        if sink == FAILURES and not self.dead_letters:
            assert isinstance(value, tuple)
            raise FunctionFailed(describe(label, value))

    def validate(self) -> None:
        """Assert the invariant."""
        times = [time for time, _, _ in self.ready]
        assert times == sorted(times), f"{self.name}: released out of order: {times}"
        assert not times or times[0] > self.t_last, f"{self.name}: {times[0]} is delivered already"
        if self.outstanding is not None:
            assert self.outstanding.t_last > self.t_last
            assert not times or times[0] > self.outstanding.t_last
        assert self.waiting_bytes == self._counted()
