"""A histogram of durations: how many were at most so long, as plain integers.

    >>> durations = Histogram((0.1, 1.0))
    >>> durations.add(0.05, 2)
    >>> durations.add(3.0)
    >>> durations.counts, durations.sum
    ([2, 0, 1], 3.1)

Cost: one bisection for each call, whatever the count; so equal durations are added together. It may
be read by another thread at any time.
"""

from __future__ import annotations

from bisect import bisect_left

BOUNDS_S = 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0
"""Upper bounds of the buckets by default, in seconds."""


class Histogram:
    """Durations, counted in buckets."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...] = BOUNDS_S) -> None:
        self.bounds = bounds
        """The upper bounds of all buckets but the last one; they grow."""
        self.counts = [0] * (len(bounds) + 1)
        """Durations in each bucket, without those of smaller buckets."""
        self.sum = 0.0

    def add(self, duration: float, count: int = 1) -> None:
        """So many durations of this length."""
        self.counts[bisect_left(self.bounds, duration)] += count
        self.sum += duration * count
