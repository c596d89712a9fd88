"""The records of a front that are under way: bounded by a window, and measured by a meter.

A record is under way until it is settled. Its copies along the way (frames, outputs, bundles) are
bounded with it.

    >>> window = Window(3, bytes_max=100)
    >>> for time in (1, 2):
    ...     window.add(time, 60)
    >>> window.full  # 120 bytes are under way
    True
    >>> window.settle(2)  # records below time 2 are settled
    >>> window.full
    False

Takes sent records and how far they are settled; decides whether another one may be sent. Invariant:
at most `records` records are under way, and at most `bytes_max` bytes before the last one was sent;
so a record of any size can be sent.
"""

from __future__ import annotations

from collections import deque
from math import ceil

from driftline.engine.meters import Histogram

WINDOW = 384
"""Default limit of records under way."""

WINDOW_BYTES = 1 << 25
"""No record is sent while this many bytes are under way."""

RECENT_S = 5.0
"""`LatencyMeter.recent` covers this many seconds."""

SAMPLES_MAX = 8192
"""Number of latencies kept: the newest ones."""

HANDED_MAX = 1 << 16
"""Maximum number of records under way that are timed individually.

Where outputs wait for a snapshot, later ones have no latencies, and count as under way until the
last of them is delivered.
"""


class Window:
    """The records of one front that are under way."""

    def __init__(self, records: int = WINDOW, bytes_max: int = WINDOW_BYTES) -> None:
        self.records = records
        self.bytes_max = bytes_max
        self.bytes = 0
        """Bytes of the records under way."""
        self._flight: deque[tuple[int, int]] = deque()
        """(time, bytes) of each."""

    @property
    def full(self) -> bool:
        """True if no record may be sent."""
        return len(self._flight) >= self.records or self.bytes >= self.bytes_max

    @property
    def under_way(self) -> int:
        """The number of records under way."""
        return len(self._flight)

    def status_figures(self) -> dict[str, int]:
        """Return what is under way, as figures of a `StatusReport`."""
        full = int(self.full)
        return {"under_way": self.under_way, "under_way_bytes": self.bytes, "window_full": full}

    def add(self, time: int, size: int) -> None:
        """Add a record that was sent. Times grow."""
        self._flight.append((time, size))
        self.bytes += size

    def settle(self, time: int) -> None:
        """Remove records below this time: they are no longer under way."""
        flight = self._flight
        while flight and flight[0][0] < time:
            self.bytes -= flight.popleft()[1]

    def clear(self) -> None:
        """Remove all records."""
        self._flight.clear()
        self.bytes = 0


class LatencyMeter:
    """How long records are under way, from the front until they are delivered.

    Takes records handed to nodes, each once even if it is replayed, and the delivered frontier.
    Yields the number of records under way, the age of the oldest, and the latencies of the last
    seconds. A latency therefore includes recoveries.
    """

    def __init__(self) -> None:
        self._handed: deque[tuple[int, float]] = deque()
        """(time of the record, when it was handed over)."""
        self._more, self._more_to = 0, 0
        """Number of records after those in `_handed`, and the time of the last one."""
        self._latencies: deque[tuple[float, float]] = deque(maxlen=SAMPLES_MAX)
        """(when it was delivered, its latency)."""
        self.latencies = Histogram()
        """All latencies so far."""

    def record_sent(self, time: int, now: float) -> None:
        """Add a record that is handed to a node for the first time; `now`: seconds, monotonic."""
        if self._more or len(self._handed) >= HANDED_MAX:
            self._more, self._more_to = self._more + 1, time
        else:
            self._handed.append((time, now))

    def update(self, now: float, delivered: int) -> None:
        """Measure the records below time `delivered`: all their outputs are delivered."""
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
        """Drop the records under way: they are lost and will not be delivered."""
        self._handed.clear()
        self._more = 0

    @property
    def under_way(self) -> int:
        """Records that were handed over and are not delivered."""
        return len(self._handed) + self._more

    @property
    def oldest(self) -> int | None:
        """The label time of the oldest of them, or None."""
        return self._handed[0][0] if self._handed else None

    def oldest_s(self, now: float) -> float:
        """Return how many seconds the oldest of them has been under way; 0 without any."""
        return now - self._handed[0][1] if self._handed else 0.0

    def recent(self, now: float) -> list[float]:
        """Return the latencies, in seconds, of records delivered within `RECENT_S`."""
        while self._latencies and self._latencies[0][0] < now - RECENT_S:
            self._latencies.popleft()
        return [latency for _, latency in self._latencies]


def percentile(values: list[float], percent: float) -> float | None:
    """Return the smallest value not exceeded by `percent` % of them, or None if there are none."""
    ordered = sorted(values)
    return ordered[max(0, ceil(len(ordered) * percent / 100) - 1)] if ordered else None
