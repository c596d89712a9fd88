"""What a view is, and how it follows the journal.

A view is a deterministic state machine over a prefix of the journal. So every replica of it answers
the same as of the same T, whenever it began and whatever checkpoint it began with.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from typing import Protocol

from driftline.engine.wire.bundles import Item, item_time
from driftline.serve.journal.merging import Span


class View(Protocol):
    """A function of all outputs below a time."""

    @property
    def time(self) -> int:
        """T: all outputs below it have been applied, and no others."""

    def apply(self, time: int, items: Sequence[Item]) -> None:
        """Apply the outputs from `self.time` up to a later time, in label order."""

    def save(self) -> Iterator[bytes]:
        """The view as of now, in parts. It may be applied to while they are taken."""

    def load(self, parts: Iterable[bytes]) -> None:
        """Become the view that was saved. Precondition: nothing has been applied.

        Raises SnapshotDamaged if the parts are of another view: then this one cannot be used.
        """


class Follower:
    """Keeps a view up to date, and tells who waits for it.

    Takes: spans, of the journal's followers or of `Journal.read`. Invariant: each output is
    applied once, in label order, however often spans come again.
    """

    def __init__(self, view: View) -> None:
        self.view = view
        self._waiting: dict[int, Callable[[], None]] = {}
        """Number -> whom to call."""
        self._moments: list[tuple[int, int]] = []
        """A heap of (time, number), also of some who do not wait any more."""
        self._number = 0

    def take(self, span: Span) -> bool:
        """Apply what is new in a span.

        Returns False, and does nothing, if what comes before the span is missing: then the journal
        has to be read, from the view's time on.
        """
        view = self.view
        if span.since > view.time:
            return False
        if span.time > view.time:
            first = bisect_left(span.items, view.time, key=item_time)
            view.apply(span.time, span.items[first:] if first else span.items)
            self._call()
        return True

    def wait(self, time: int, callback: Callable[[], None]) -> int:
        """Call back once, as soon as the view is as of this time or later; perhaps at once.

        Returns a number for `cancel`.
        """
        self._number += 1
        if self.view.time >= time:
            callback()
        else:
            self._waiting[self._number] = callback
            heappush(self._moments, (time, self._number))
        return self._number

    def cancel(self, number: int) -> None:
        """Do not call back. May be called too late, or again."""
        self._waiting.pop(number, None)
        if len(self._moments) > 2 * len(self._waiting) + 100:
            self._moments = [each for each in self._moments if each[1] in self._waiting]
            heapify(self._moments)

    def _call(self) -> None:
        while self._moments and self._moments[0][0] <= self.view.time:
            _, number = heappop(self._moments)
            callback = self._waiting.pop(number, None)
            if callback is not None:
                callback()
