"""Exactly-once barrier: releases outputs in label order as soon as the frontier passes them.

No output waits for a snapshot. A replay produces the same outputs again, and the barrier drops
outputs with a time up to the consumer's t_last (paper "Delivery, consistency, and determinism",
section V-A2). The barrier also checks that the replay reproduces these outputs: when the replay
passes t_last, the running checksum over all final blobs, with the dropped ones, has to match the
consumer's. If Driftline knows that the code of the flow has changed since the snapshot, the outputs
up to t_last are not comparable. Then the barrier continues from the consumer's checksum, and
UNKNOWN_CHECKSUM is recorded in snapshots as of a time up to t_last.

Example: `b` of time 2 arrives before `a` of time 1, and `C` of time 3 replaces `c`:

    >>> from driftline.barrier.barrier import NO_T_LAST
    >>> def show(bundle):
    ...     if bundle is not None:
    ...         items = [item for blob in bundle.blobs for item in from_blob(blob)]
    ...         print([item.value for item in items], "t_last", bundle.t_last)
    >>> barrier = OrderedBarrier("barrier-0", groups=(0, 63))
    >>> barrier.handle_last_bundle(NO_T_LAST, 0, ())  # the consumer has no bundle yet
    >>> barrier.add_outputs(0, [(2, 0)], ["b"], None)
    >>> barrier.add_outputs(0, [(1, 0)], ["a"], None)
    >>> barrier.add_outputs(0, [(3, 0)], ["c"], None)
    >>> barrier.advance(3)  # all outputs below time 3 are final
    >>> first = barrier.take_bundle(incarnation=1)
    >>> show(first)
    ['a', 'b'] t_last 2
    >>> barrier.add_outputs(0, [(3, 0), (3, 0)], ["c", "C"], [-1, 1])
    >>> barrier.advance(4)
    >>> show(barrier.take_bundle(1))  # not before the consumer has stored the first bundle
    >>> barrier.delivered
    0
    >>> barrier.mark_stored(2)
    >>> show(barrier.take_bundle(1))
    ['C'] t_last 3

Then the node crashes, and the second bundle is lost. The node replays from time 1, and the consumer
reports the first bundle:

    >>> replay = OrderedBarrier("barrier-0", groups=(0, 63), start=1, checksum=0)
    >>> replay.handle_last_bundle(first.t_last, first.checksum, first.blobs)
    >>> replay.add_outputs(0, [(1, 0), (2, 0), (3, 0)], ["a", "b", "C"], None)
    >>> replay.advance(4)
    >>> show(replay.take_bundle(2))
    ['C'] t_last 3
    >>> other = OrderedBarrier("barrier-0", groups=(0, 63), start=1, checksum=0)
    >>> other.handle_last_bundle(first.t_last, first.checksum, first.blobs)
    >>> other.add_outputs(0, [(1, 0), (2, 0)], ["a", "B"], None)
    >>> other.advance(3)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    driftline.engine.errors.NotDeterministic: ... The first difference is at label [2, 0]...

Inputs: outputs of operators, the frontier, the consumer's answers. Results: bundles. Invariant:
exactly the outputs below the frontier have been released, in label order, each once.

At the end of a run t_last is the time of the last output, not INFINITY, because the run may
continue with inputs that have grown.
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush
from itertools import repeat
from operator import itemgetter

from driftline.barrier.barrier import ADVICE, Barrier
from driftline.engine.errors import NotDeterministic, StateMismatch
from driftline.engine.labels import INFINITY, Label
from driftline.engine.operators.steps import FAILURES, Signs, Values, split_by_time
from driftline.engine.texts import format_time
from driftline.engine.wire.bundles import from_blob, running_checksum, to_blob
from driftline.engine.wire.codec import canonical_bytes, pack_rows, unpack_rows
from driftline.engine.wire.label_columns import Labels, is_sorted

UNKNOWN_CHECKSUM = -1
"""In place of a checksum, which is never negative: other code produced the consumer's outputs."""

ENCODE_AHEAD_TIMES_MAX = 4
"""If more times than this are pending, the node is under load, and `encode_ahead` does nothing."""

Output = tuple[Label, int, object]
"""(label, sink, payload)"""


class Pending:
    """Outputs of one time that are not final yet, batch by batch.

    Nearly always there is one packed batch in label order, which becomes a blob unchanged. If
    elements were out of order, or if there are several batches, the outputs are unpacked, matched
    with tombstones, and sorted. Payloads that arrive packed stay packed until then: bytes take less
    memory than objects, and no user function can change them.
    """

    __slots__ = ("batches", "blob", "has_failures", "retracted")

    def __init__(self) -> None:
        self.blob: bytes | None = None
        """The blob, if `encode_ahead` has encoded the outputs and none was added since."""
        self.has_failures = False
        """Whether a failure was added, even if it is retracted."""
        self.batches: list[tuple[Labels, int, Values | bytes]] = []
        """(labels, sink, payloads as values or in the wire format), in order of arrival."""
        self.retracted: list[Output] = []
        """The outputs that tombstones retract. `batches` still contains them."""

    def add(
        self, sink: int, labels: Labels, values: Values, signs: Signs, packed: bytes = b""
    ) -> None:
        """Add outputs of this time; tombstones (sign -1) retract earlier ones."""
        self.blob = None
        self.has_failures |= sink == FAILURES
        if signs is None:
            self.batches.append((labels, sink, packed or values))
            return
        for label, value, sign in zip(labels, values, signs, strict=True):
            if sign > 0:
                # A failure contains a whole record, which takes less memory in the wire format.
                stored = pack_rows([value]) if sink == FAILURES else [value]
                self.batches.append(([label], sink, stored))
            else:
                self.retracted.append((label, sink, value))

    def _is_in_order(self) -> bool:
        """Return whether there is just one batch, in label order, and no tombstone."""
        return len(self.batches) == 1 and not self.retracted and is_sorted(self.batches[0][0])

    def packed_blob(self) -> bytes | None:
        """Return the blob of the outputs if they are one packed batch in label order, without
        failures; otherwise None."""
        if self._is_in_order() and not self.has_failures:
            labels, sink, values = self.batches[0]
            if isinstance(values, bytes):
                return to_blob(labels, sink, (), values)
        return None

    def outputs(self) -> tuple[Labels, int | list[int], Values]:
        """Return labels, sinks and payloads, in label order, without retracted outputs.

        The sinks are one number if there is only one batch.
        """
        if self._is_in_order():
            labels, sink, values = self.batches[0]
            return labels, sink, _unpacked(values)
        outputs: list[Output] = []
        for labels, sink, values in self.batches:
            outputs += zip(labels, repeat(sink), _unpacked(values))
        if self.retracted:
            outputs = _remove_retracted(outputs, self.retracted)
        outputs.sort(key=itemgetter(0))
        return (
            [output[0] for output in outputs],
            [output[1] for output in outputs],
            [output[2] for output in outputs],
        )


def _unpacked(values: Values | bytes) -> Values:
    return unpack_rows(values) if isinstance(values, bytes) else values


def _remove_retracted(outputs: list[Output], retracted: list[Output]) -> list[Output]:
    """Return the outputs that no tombstone retracts. Compares encoded values, because 1 == True."""
    tombstones: dict[tuple[Label, int], list[bytes]] = {}
    for label, sink, value in retracted:
        tombstones.setdefault((label, sink), []).append(canonical_bytes(value))
    kept: list[Output] = []
    for output in outputs:
        candidates = tombstones.get(output[:2])
        if candidates:
            encoded = canonical_bytes(output[2])
            if encoded in candidates:
                candidates.remove(encoded)
                continue
        kept.append(output)
    assert not any(tombstones.values()), "a tombstone for an output that was not added"
    return kept


class OrderedBarrier(Barrier):
    """Barrier that holds outputs until they are final; the module's docstring has an example.

    `start`: the time from which the incarnation replays; `checksum`: the checksum over all blobs
    below `start`, or UNKNOWN_CHECKSUM; `same_code`: whether the code that runs now also took the
    snapshot, and so produced the consumer's outputs.
    """

    def __init__(
        self,
        name: str,
        groups: tuple[int, int],
        dead_letters: bool = False,
        start: int = 0,
        checksum: int = 0,
        same_code: bool = True,
    ) -> None:
        super().__init__(name, groups, dead_letters)
        self.released_up_to = start - 1
        self.complete = False
        """Whether all outputs of the run have been released."""
        self.checksum = checksum
        self.comparable = same_code and checksum != UNKNOWN_CHECKSUM
        """Whether a replay has to reproduce the outputs that the consumer has."""
        self.pending: dict[int, Pending] = {}
        """Time -> its outputs, which are not final yet."""
        self.times: list[int] = []
        """Heap of the times in `pending`."""
        self.history: deque[tuple[int, int]] = deque([(start - 1, checksum)])
        """(time, checksum over all blobs up to this time), as far back as a snapshot may need."""
        self._replay: _Replay | None = None
        """The comparison with the consumer's outputs, until the replay has passed t_last."""

    def add_outputs(
        self, sink: int, labels: Labels, values: Values, signs: Signs, packed: bytes = b""
    ) -> None:
        for time, batch in split_by_time((labels, values, signs)):
            assert time > self.released_up_to, (
                f"{self.name}: an output of time {time}; outputs up to {self.released_up_to} "
                "have left"
            )
            is_whole = len(batch[0]) == len(labels)  # then `packed` is the batch's encoding
            self._pending_of(time).add(sink, *batch, packed if is_whole else b"")

    def _pending_of(self, time: int) -> Pending:
        pending = self.pending.get(time)
        if pending is None:
            pending = self.pending[time] = Pending()
            heappush(self.times, time)
        return pending

    def advance(self, frontier: int) -> None:
        times = self.times
        while times and times[0] < frontier:
            time = heappop(times)
            blob = self._encoded(self.pending.pop(time))
            if blob:
                self._release(time, blob)
        self.complete = self.complete or frontier >= INFINITY
        released_up_to = self.history[-1][0] if self.complete else frontier - 1
        self.released_up_to = max(self.released_up_to, released_up_to)
        if self._replay is not None and (
            self.complete or self.released_up_to >= self._replay.t_last
        ):
            self._end_replay()

    def trim_history(self, frontier: int) -> None:
        history = self.history
        while len(history) > 1 and history[1][0] < frontier:
            history.popleft()

    def encode_ahead(self) -> bool:
        """Encode the outputs of one time before they are final, if the node is not under load.

        Return whether outputs were encoded.
        """
        if len(self.times) <= ENCODE_AHEAD_TIMES_MAX:
            for pending in self.pending.values():
                if pending.blob is None and not pending.has_failures:
                    pending.blob = self._encoded(pending)
                    return True
        return False

    def _encoded(self, pending: Pending) -> bytes:
        """Return the blob of the outputs; b"" if all are retracted.

        Raises FunctionFailed for a failure that is not a dead letter.
        """
        if pending.blob is not None:
            return pending.blob
        if (blob := pending.packed_blob()) is not None:
            return blob
        labels, sinks, values = pending.outputs()
        if pending.has_failures:
            for label, sink, value in zip(
                labels, _sinks_of(sinks, len(labels)), values, strict=True
            ):
                self.check_failure(sink, label, value)
        return to_blob(labels, sinks, values) if labels else b""

    def _format_t_last(self, t_last: int) -> str:
        return format_time(t_last)

    @property
    def delivered(self) -> int:
        if self.queued or self.outstanding is not None or not self.connected:
            return self.t_last + 1
        return INFINITY if self.complete else self.released_up_to + 1

    def handle_last_bundle(self, t_last: int, checksum: int, blobs: tuple[bytes, ...]) -> None:
        if not self.connected and self.released_up_to < t_last:
            self._replay = _Replay(self.name, self.released_up_to + 1, t_last, checksum, blobs)
            if not self.comparable:
                self.history.append((self.released_up_to + 1, UNKNOWN_CHECKSUM))
        elif not self.connected and checksum != self.checksum:
            raise StateMismatch(
                f"{self.name}: up to {format_time(self.released_up_to)}, the outputs stored by the "
                "consumer (for a service, by its journal) are not those after which the snapshot "
                "was taken: they have been changed or removed, or the state directory is another "
                f"run's. {ADVICE}"
            )
        super().handle_last_bundle(t_last, checksum, blobs)

    def checksum_before(self, time: int) -> int:
        """Return the checksum over all blobs below a time, which may be UNKNOWN_CHECKSUM.

        Precondition: times do not decrease from call to call.
        """
        self.trim_history(time)
        return self.history[0][1]

    def validate(self) -> None:
        super().validate()
        assert sorted(self.times) == sorted(self.pending)
        assert not self.times or self.times[0] > self.released_up_to, f"{self.name}: a late output"

    def _release(self, time: int, blob: bytes) -> None:
        """Add a blob to the checksum, and queue it unless the consumer has it already.

        Drop a blob of a replay that is not comparable: the consumer's checksum covers its time.
        """
        if self._replay is not None:
            if time > self._replay.t_last:
                self._end_replay()
            elif self.comparable:
                self._replay.add(time, blob)
            else:
                return
        self.checksum = running_checksum(self.checksum, blob)
        self.history.append((time, self.checksum))
        if time > self.t_last:
            self._queue(time, blob)

    def _end_replay(self) -> None:
        """Compare the replay with the consumer's outputs, or adopt the consumer's checksum."""
        assert self._replay is not None
        replay, self._replay = self._replay, None
        if self.comparable:
            replay.check(self.checksum)
        else:
            self.checksum, self.comparable = replay.checksum, True
            self.history.append((replay.t_last, self.checksum))


def _sinks_of(sinks: int | list[int], count: int) -> list[int]:
    return [sinks] * count if isinstance(sinks, int) else sinks


class _Replay:
    """Comparison of a replay's outputs up to t_last with the consumer's outputs.

    `start`: the time at which the replay began; `checksum`: the consumer's checksum at t_last;
    `stored`: the blobs of the consumer's last bundle.
    """

    def __init__(
        self, barrier: str, start: int, t_last: int, checksum: int, stored: tuple[bytes, ...]
    ) -> None:
        self.barrier = barrier
        self.start = start
        self.t_last = t_last
        self.checksum = checksum
        self.stored = list(stored)
        self.stored_from = from_blob(stored[0])[0].label[0] if stored else INFINITY
        """The smallest time in `stored`."""
        self.blobs: list[bytes] = []
        """The blobs of the replay to compare with `stored`."""

    def add(self, time: int, blob: bytes) -> None:
        """Record a blob that the replay released. Precondition: its time is at most t_last."""
        if time >= self.stored_from:
            self.blobs.append(blob)

    def check(self, checksum: int) -> None:
        """Raise NotDeterministic if `checksum`, the barrier's at t_last, is not the consumer's."""
        if checksum == self.checksum:
            return
        raise NotDeterministic(
            f"{self.barrier}: a replay produced other outputs than those that were delivered "
            f"{self._range_end()}{self._first_difference()}. Either code has changed that "
            "Driftline does not compare: start over with another --output. Or a function of the "
            "flow is not deterministic: it uses a clock, randomness or I/O. Or the input has "
            f"changed, from {format_time(self.start)} {self._range_end()}: restore the original "
            "records"
        )

    def _range_end(self) -> str:
        is_all = self.t_last >= INFINITY - 1  # the largest time of an output
        return "to the end" if is_all else f"up to {format_time(self.t_last)}"

    def _first_difference(self) -> str:
        """Describe the first label whose outputs differ from those in the last bundle."""
        stored, replayed = (
            {
                item.label: canonical_bytes((item.sink, item.value))
                for blob in blobs
                for item in from_blob(blob)
            }
            for blobs in (self.stored, self.blobs)
        )
        min_label = min(stored, default=())
        for label in sorted({*stored, *replayed}):
            if stored and label >= min_label and stored.get(label) != replayed.get(label):
                return f". The first difference is at label {list(label)}"
        return ". The first difference is before the last bundle"
