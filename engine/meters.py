"""Metrics: samples, histograms and stopwatches. Callers pass the current time to stopwatches.

Other threads may read the metrics at any time.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable

BOUNDS_S = 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0
"""Default upper bounds of the buckets, in seconds."""


class Histogram:
    """Counts of durations, in buckets with upper bounds, and the sum of the durations.

        >>> durations = Histogram((0.1, 1.0))
        >>> durations.add(0.05, 2)
        >>> durations.add(3.0)
        >>> durations.counts, durations.sum
        ([2, 0, 1], 3.1)

    Cost: one bisection per call, whatever the count. So add equal durations in one call.
    """

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...] = BOUNDS_S) -> None:
        self.bounds = bounds
        """The upper bounds of all buckets but the last one, in seconds, in ascending order."""
        self.counts = [0] * (len(bounds) + 1)
        """Number of durations in each bucket, not cumulative."""
        self.sum = 0.0
        """Sum of all durations, in seconds."""

    def add(self, duration: float, count: int = 1) -> None:
        """Add `count` durations of this length."""
        self.counts[bisect_left(self.bounds, duration)] += count
        self.sum += duration * count


class Stopwatch:
    """Total time during which a condition held.

    >>> full = Stopwatch()
    >>> full.update(True, 10.0)
    >>> full.update(True, 11.0)
    >>> full.total(12.0)
    2.0
    >>> full.update(False, 13.0)
    >>> full.total(20.0)
    3.0
    """

    __slots__ = ("_state",)

    def __init__(self) -> None:
        self._state: tuple[float, float | None] = (0.0, None)
        """(total seconds of past periods, start of the current one; None: the condition is false)
        """

    def update(self, holds: bool, now: float) -> None:
        """Record whether the condition holds. `now`: seconds, monotonic."""
        seconds, since = self._state
        if since is None:
            if holds:
                self._state = seconds, now
        elif not holds:
            self._state = seconds + now - since, None

    def total(self, now: float) -> float:
        """Return for how many seconds the condition has held until now."""
        seconds, since = self._state
        return seconds if since is None else seconds + max(0.0, now - since)


Value = float | Histogram

Sample = tuple[str, tuple[str, ...], Value]
"""(name of a metric, values of its Prometheus labels except `flow`, value)"""

Samples = Callable[[], Iterable[Sample]]
"""Function that returns the current samples, for example of a role."""
