"""The meter of a front: how long records are under way, from the front until they are delivered.

Takes: records handed to nodes, each once, however often it is replayed; and the delivered frontier.
Gives: the number of records under way, the age of the oldest, and percentiles of the latencies of
the last seconds. So a latency includes the recoveries in it.
"""

from __future__ import annotations

from collections import deque
from math import ceil

from driftline.engine.meters import Histogram

RECENT_S = 5.0
"""Latencies of records that were delivered within the last seconds count."""

SAMPLES_MAX = 8192
"""Latencies that are kept, at most: the newest ones."""

HANDED_MAX = 1 << 16
"""Records under way that are remembered one by one, at most: where outputs wait for a snapshot,
later ones are under way until the last of them is delivered, and have no latencies."""


class Meter:
    """The records of one front that are under way, and the latencies of the last ones."""

    def __init__(self) -> None:
        self._handed: deque[tuple[int, float]] = deque()
        """(time of the record, when it was handed over)"""
        self._more, self._more_to = 0, 0
        """Records behind those, and the time of the last one."""
        self._latencies: deque[tuple[float, float]] = deque(maxlen=SAMPLES_MAX)
        """(when it was delivered, its latency)"""
        self.latencies = Histogram()
        """All latencies so far."""

    def hand(self, time: int, now: float) -> None:
        """A record is handed to a node, for the first time; `now`: seconds, monotonic."""
        if self._more or len(self._handed) >= HANDED_MAX:
            self._more, self._more_to = self._more + 1, time
        else:
            self._handed.append((time, now))

    def look(self, now: float, delivered: int) -> None:
        """All outputs of records below this time are delivered."""
        handed = self._handed
        latency, count = 0.0, 0
        while handed and handed[0][0] < delivered:
            before, latency = latency, now - handed.popleft()[1]
            self._latencies.append((now, latency))
            if count and latency != before:  # records of one turn have the same
                self.latencies.add(before, count)
                count = 0
            count += 1
        if count:
            self.latencies.add(latency, count)
        if self._more and self._more_to < delivered:
            self._more = 0

    def give_up(self) -> None:
        """The records under way are lost: what was handed over will not be delivered."""
        self._handed.clear()
        self._more = 0

    @property
    def under_way(self) -> int:
        """Records that were handed over and are not delivered."""
        return len(self._handed) + self._more

    @property
    def oldest(self) -> int | None:
        """The time (of its label) of the oldest of them; None without any."""
        return self._handed[0][0] if self._handed else None

    def oldest_s(self, now: float) -> float:
        """For how long the oldest of them has been under way, in seconds; 0 without any."""
        return now - self._handed[0][1] if self._handed else 0.0

    def recent(self, now: float) -> list[float]:
        """The latencies, in seconds, of records delivered within `RECENT_S`."""
        while self._latencies and self._latencies[0][0] < now - RECENT_S:
            self._latencies.popleft()
        return [latency for _, latency in self._latencies]


def percentile(values: list[float], percent: float) -> float | None:
    """The smallest value that is not exceeded by `percent` % of them; None if there are none."""
    ordered = sorted(values)
    return ordered[max(0, ceil(len(ordered) * percent / 100) - 1)] if ordered else None
