"""The barrier of `none` and `at-least-once`: outputs leave at once, in the order of arrival.

Takes: outputs. Gives: bundles. Invariant: the number of a bundle is its t_last, and is one more
than that of the bundle before; an output has the number of its bundle as soon as it is held. No
output is dropped after a recovery: outputs can come twice (at-least-once) or be missing (none).
"""

from __future__ import annotations

from driftline.barrier.awaited import Awaited
from driftline.barrier.barrier import Barrier
from driftline.engine.operators.steps import Signs, Values
from driftline.engine.wire.bundles import to_blob
from driftline.engine.wire.label_columns import Labels


class ImmediateBarrier(Barrier):
    """Holds outputs only until the consumer has stored the bundle before."""

    def __init__(self, name: str, groups: tuple[int, int], dead_letters: bool = False) -> None:
        super().__init__(name, groups, dead_letters)
        self._awaited = Awaited()
        self._last_bytes = 0
        """Bytes of the bundle with the largest number, which no output has left yet."""

    def hold(
        self, sink: int, labels: Labels, values: Values, signs: Signs, packed: bytes = b""
    ) -> None:
        assert signs is None or signs == [1], "only an ordered barrier can take outputs back"
        self.check_failure(sink, labels[0], values[0])
        blob = to_blob(labels, sink, values, packed)
        if not self.ready or self._last_bytes >= self.bundle_bytes:
            self.released_to += 1
            self._last_bytes = 0
        self._last_bytes += len(blob)
        self._queue(self.released_to, blob)

    def progress(self, processed: int) -> None:
        self._awaited.add(processed, self.released_to)

    @property
    def delivered(self) -> int:
        return self._awaited.delivered(self.stored_units) if self.connected else 0

    def last(self, t_last: int, checksum: int, blobs: tuple[bytes, ...]) -> None:
        super().last(t_last, checksum, blobs)
        self.released_to = max(self.released_to, self.t_last)
