"""The barrier of `none` and `at-least-once`: outputs leave at once, in the order of arrival.

Nothing is filtered after a recovery; so outputs can come again (at-least-once) or be missing
(none). Bundles are numbered on from the consumer's last one, and several may be on their way.
"""

from __future__ import annotations

from itertools import repeat

from barrier.barrier import Barrier
from engine.bundles import to_blob
from engine.labels import INFINITY
from engine.messages import Bundle
from engine.operators import Labels, Signs, Values


class ImmediateBarrier(Barrier):
    """Holds nothing back."""

    def __init__(self, name: str, groups: tuple[int, int], dead_letters: bool = False) -> None:
        super().__init__(name, groups, dead_letters)
        self.complete = False
        self._next = 0

    def hold(self, sink: int, labels: Labels, values: Values, signs: Signs) -> None:
        assert signs is None or signs == [1], "only an ordered barrier can take outputs back"
        self.check_failure(sink, labels[0], values[0])
        self.ready.append((self._next, to_blob(labels, list(repeat(sink, len(labels))), values)))

    def advance(self, frontier: int) -> None:
        self.complete = frontier >= INFINITY

    @property
    def delivered(self) -> int:
        done = self.complete and not self.ready and self.t_last == self.moved_to
        return INFINITY if done else 0

    def last(self, t_last: int, checksum: int, blobs: tuple[bytes, ...]) -> None:
        self.connected = True
        self.t_last = self.moved_to = max(self.moved_to, t_last)

    def stored(self, t_last: int) -> None:
        self.t_last = max(self.t_last, t_last)

    def take_bundle(self, incarnation: int) -> Bundle | None:
        if not self.ready or not self.connected:
            return None
        blobs = tuple(blob for _, blob in self.ready)
        self.ready.clear()
        self.moved_to += 1
        return Bundle(self.name, incarnation, self.groups, blobs, self.moved_to, 0)

    def validate(self) -> None:
        assert self.t_last <= self.moved_to
