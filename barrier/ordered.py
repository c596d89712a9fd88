"""The barrier of exactly-once: outputs leave in label order as soon as the frontier passes them.

No checkpoint is waited for. A replay gives the same outputs again, and those with a time up to
the consumer's t_last are dropped (Delivery, consistency, and determinism, section V-A2). That the
replay did give the same is not taken on trust: a checksum runs over everything released, and is
compared where the replay passes t_last (`NotDeterministic`).
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush

from driftline.barrier.barrier import ADVICE, Barrier
from driftline.barrier.pending import Pending
from driftline.engine.errors import NotDeterministic, StateMismatch
from driftline.engine.labels import INFINITY
from driftline.engine.order.steps import Signs, Values, by_time
from driftline.engine.wire.bundles import from_blob, running_checksum, to_blob
from driftline.engine.wire.codec import exact
from driftline.engine.wire.label_columns import Labels

ENCODE_AHEAD_UP_TO = 4
"""Times that may be pending for outputs to be encoded before they are final."""


class OrderedBarrier(Barrier):
    """Releases below the frontier; filters by t_last; guards determinism."""

    def __init__(
        self,
        name: str,
        groups: tuple[int, int],
        dead_letters: bool = False,
        start: int = 0,
        checksum: int = 0,
    ) -> None:
        super().__init__(name, groups, dead_letters)
        self.moved_to = start - 1
        self.checksum = checksum
        self.pending: dict[int, Pending] = {}
        self.times: list[int] = []
        """A heap of the times in `pending`."""
        self.history: deque[tuple[int, int]] = deque([(start - 1, checksum)])
        """(time, checksum up to and with it), as far back as a snapshot may ask."""
        self._replay: _Replay | None = None

    def hold(
        self, sink: int, labels: Labels, values: Values, signs: Signs, packed: bytes = b""
    ) -> None:
        for time, part in by_time((labels, values, signs)):
            assert time > self.moved_to, (
                f"{self.name}: an output of time {time} after those up to {self.moved_to} have left"
            )
            whole = len(part[0]) == len(labels)
            self._held(time).add(sink, *part, packed if whole else b"")

    def _held(self, time: int) -> Pending:
        held = self.pending.get(time)
        if held is None:
            held = self.pending[time] = Pending()
            heappush(self.times, time)
        return held

    def advance(self, frontier: int) -> None:
        times = self.times
        while times and times[0] < frontier:
            time = heappop(times)
            blob = self._encoded(self.pending.pop(time))
            if blob:
                self._release(time, blob)
        self.moved_to = max(self.moved_to, frontier - 1)
        if self._replay is not None and self.moved_to >= self._replay.t_last:
            self._end_replay()

    def encode_ahead(self) -> bool:
        """Encode outputs while there is nothing better to do than to wait for the frontier.

        Returns whether there was anything. Under load it is not worth it.
        """
        if len(self.times) <= ENCODE_AHEAD_UP_TO:
            for held in self.pending.values():
                if held.blob is None and not held.fails:
                    held.blob = self._encoded(held)
                    return True
        return False

    def _encoded(self, held: Pending) -> bytes:
        """The blob of outputs, empty if none is left. Raises FunctionFailed."""
        if held.blob is not None:
            return held.blob
        if (blob := held.as_it_came()) is not None:
            return blob
        labels, sinks, values = held.outputs()
        if held.fails:
            for label, sink, value in zip(labels, _each(sinks, len(labels)), values, strict=True):
                self.check_failure(sink, label, value)
        return to_blob(labels, sinks, values) if labels else b""

    @property
    def delivered(self) -> int:
        if self.ready or self.outstanding is not None or not self.connected:
            return self.t_last + 1
        return self.moved_to + 1

    def last(self, t_last: int, checksum: int, blobs: tuple[bytes, ...]) -> None:
        if not self.connected and self.moved_to < t_last:
            self._replay = _Replay(self.name, t_last, checksum, blobs)
        elif not self.connected and checksum != self.checksum:
            raise StateMismatch(
                f"{self.name}: the consumer has other outputs than the snapshot up to time "
                f"{self.moved_to}: outputs have been changed or removed, or the state directory is "
                f"another run's. {ADVICE}"
            )
        super().last(t_last, checksum, blobs)

    def checksum_before(self, time: int) -> int:
        """The checksum over everything below a time; forgets what came before."""
        history = self.history
        while len(history) > 1 and history[1][0] < time:
            history.popleft()
        return history[0][1]

    def validate(self) -> None:
        super().validate()
        assert sorted(self.times) == sorted(self.pending)
        assert not self.times or self.times[0] > self.moved_to, f"{self.name}: a late output"

    def _release(self, time: int, blob: bytes) -> None:
        if self._replay is not None:
            if time <= self._replay.t_last:
                self._replay.blobs.append(blob)
            else:
                self._end_replay()
        self.checksum = running_checksum(self.checksum, blob)
        self.history.append((time, self.checksum))
        if time > self.t_last:
            self.ready.append((time, blob))

    def _end_replay(self) -> None:
        assert self._replay is not None
        self._replay.check(self.checksum)
        self._replay = None


def _each(sinks: int | list[int], count: int) -> list[int]:
    return [sinks] * count if isinstance(sinks, int) else sinks


class _Replay:
    """What the consumer has beyond the snapshot, to be compared with what the replay gives."""

    def __init__(self, barrier: str, t_last: int, checksum: int, stored: tuple[bytes, ...]) -> None:
        self.barrier = barrier
        self.t_last = t_last
        self.checksum = checksum
        self.stored = stored
        self.blobs: list[bytes] = []

    def check(self, checksum: int) -> None:
        if checksum == self.checksum:
            return
        raise NotDeterministic(
            f"{self.barrier}: a replay gave other outputs than those that were delivered "
            f"{self._until()}{self._where()}. Either the code of the flow has been changed since: "
            "begin anew with another --output. Or a function of it is not deterministic: it uses a "
            "clock, randomness or I/O"
        )

    def _until(self) -> str:
        return "to the end" if self.t_last >= INFINITY - 1 else f"up to time {self.t_last}"

    def _where(self) -> str:
        stored, replayed = (
            {
                item.label: exact((item.sink, item.value))
                for blob in blobs
                for item in from_blob(blob)
            }
            for blobs in (self.stored, self.blobs)
        )
        first = min(stored, default=())
        for label in sorted({*stored, *replayed}):
            if stored and label >= first and stored.get(label) != replayed.get(label):
                return f", first seen at label {list(label)}"
        return ", before the last bundle"
