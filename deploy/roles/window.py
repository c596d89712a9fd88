"""Records in flight from a front: a window bounds their number, and a meter measures their latency.

A record is in flight until the front releases it. By bounding these records, the window also bounds
the frames, outputs and bundles that contain copies of them.

    >>> window = InFlightWindow(3, bytes_max=100)
    >>> for time in (1, 2):
    ...     window.add(time, 60, now=0.0)
    >>> window.full  # 120 bytes are in flight
    True
    >>> window.release(2, now=0.1)  # records below time 2 are delivered
    >>> window.full
    False

Invariant: at most `records` records are in flight. Without the last one, they have fewer than
`bytes_max` bytes. So a record of any size can be sent.

Records that cost little need a large window: otherwise each frame holds few of them, and nodes
mostly wait. Records that cost much need a small one: they would only wait longer, also for the end
of a drain. Therefore the automatic window aims at a *time* in flight: it doubles while it is full
although records leave it sooner than `GROW_BELOW_S`, and halves while they need longer than
`SHRINK_ABOVE_S`.
"""

from __future__ import annotations

from collections import deque
from math import ceil

from driftline.engine.meters import Histogram

WINDOW, WINDOW_MAX = 384, 4 * 384
"""Smallest and largest limit of records in flight of the automatic window.

A larger window would make the throughput of cheap records a quarter higher. But a drain has to
process all records in flight, even if they suddenly cost much.
"""

GROW_BELOW_S, SHRINK_ABOVE_S = 0.05, 0.2
"""Times in flight, in seconds, at which a full automatic window grows or shrinks."""

WINDOW_BYTES = 1 << 25
"""No record is sent while this many bytes are in flight."""

RECENT_S = 5.0
"""`LatencyMeter.recent` covers this many past seconds."""

SAMPLES_MAX = 8192
"""Maximum number of latencies that `LatencyMeter.recent` returns: the newest ones."""

UNDELIVERED_MAX = 1 << 16
"""Maximum number of undelivered records whose latencies are measured.

There may be more if outputs wait for a snapshot. No latency is measured for the records beyond
this number; all of them count as undelivered until the last of them is delivered.
"""


class InFlightWindow:
    """Window of one front: the records in flight, and whether another one may be sent.

    `records`: maximum number of records in flight; None: automatic. `bytes_max`: see
    `WINDOW_BYTES`.
    """

    def __init__(self, records: int | None = None, bytes_max: int = WINDOW_BYTES) -> None:
        self._is_automatic = records is None
        self.records = records or WINDOW
        """The current maximum number of records in flight."""
        self.bytes_max = bytes_max
        self.bytes = 0
        """Bytes of the records in flight."""
        self._flight: deque[tuple[int, int, float]] = deque()
        """(label time, bytes, sending time) of each record in flight."""

    @property
    def full(self) -> bool:
        """Whether no record may be sent now."""
        return len(self._flight) >= self.records or self.bytes >= self.bytes_max

    @property
    def in_flight(self) -> int:
        """The number of records in flight."""
        return len(self._flight)

    def status_figures(self) -> dict[str, int]:
        """Return figures for a `StatusReport`, by name."""
        full = int(self.full)
        return {"in_flight": self.in_flight, "in_flight_bytes": self.bytes, "window_full": full}

    def add(self, time: int, size: int, now: float) -> None:
        """Add a record that was sent; `size`: in bytes; `now`: seconds, monotonic.

        Precondition: label times grow.
        """
        self._flight.append((time, size, now))
        self.bytes += size

    def release(self, time: int, now: float) -> None:
        """Remove the records below a label time: they are no longer in flight."""
        flight = self._flight
        was_full = len(flight) >= self.records
        sent_at: float | None = None
        while flight and flight[0][0] < time:
            _, size, sent_at = flight.popleft()
            self.bytes -= size
        if self._is_automatic and was_full and sent_at is not None:
            if now - sent_at < GROW_BELOW_S:
                self.records = min(2 * self.records, WINDOW_MAX)
            elif now - sent_at > SHRINK_ABOVE_S:
                self.records = max(self.records // 2, WINDOW)

    def clear(self) -> None:
        """Remove all records."""
        self._flight.clear()
        self.bytes = 0


class LatencyMeter:
    """Meter of latencies: the time from sending a record to the delivery of its outputs.

    The front reports each sent record once, even if it is replayed, and the delivered frontier.
    A latency includes recoveries, because a replayed record keeps its first sending time.
    """

    def __init__(self) -> None:
        self._undelivered: deque[tuple[int, float]] = deque()
        """(label time, sending time) of the undelivered records."""
        self._untimed, self._last_untimed = 0, 0
        """Number of undelivered records beyond those in `_undelivered`; label time of the last."""
        self._latencies: deque[tuple[float, float]] = deque(maxlen=SAMPLES_MAX)
        """(delivery time, latency) of the newest delivered records, in seconds."""
        self.latencies = Histogram()
        """Histogram of all latencies so far, in seconds."""

    def record_sent(self, time: int, now: float) -> None:
        """Add a record that is sent for the first time. `now`: seconds, monotonic."""
        if self._untimed or len(self._undelivered) >= UNDELIVERED_MAX:
            self._untimed, self._last_untimed = self._untimed + 1, time
        else:
            self._undelivered.append((time, now))

    def update(self, now: float, delivered: int) -> None:
        """Measure the latencies of the records below label time `delivered`."""
        undelivered = self._undelivered
        latency, count = 0.0, 0
        while undelivered and undelivered[0][0] < delivered:
            previous, latency = latency, now - undelivered.popleft()[1]
            self._latencies.append((now, latency))
            if count and latency != previous:  # records of one turn have equal latencies
                self.latencies.add(previous, count)
                count = 0
            count += 1
        if count:
            self.latencies.add(latency, count)
        if self._untimed and self._last_untimed < delivered:
            self._untimed = 0

    def give_up(self) -> None:
        """Drop the undelivered records: the policy does not replay them, so they are lost."""
        self._undelivered.clear()
        self._untimed = 0

    @property
    def in_flight(self) -> int:
        """Number of records that were sent and are not delivered."""
        return len(self._undelivered) + self._untimed

    @property
    def oldest(self) -> int | None:
        """Label time of the oldest undelivered record; None without any."""
        return self._undelivered[0][0] if self._undelivered else None

    def oldest_s(self, now: float) -> float:
        """Return the age of the oldest undelivered record in seconds; 0 without any."""
        return now - self._undelivered[0][1] if self._undelivered else 0.0

    def recent(self, now: float) -> list[float]:
        """Return the latencies, in seconds, of records delivered in the last `RECENT_S`."""
        while self._latencies and self._latencies[0][0] < now - RECENT_S:
            self._latencies.popleft()
        return [latency for _, latency in self._latencies]


def percentile(values: list[float], percent: float) -> float | None:
    """Return the smallest value that `percent` % of the values do not exceed; None without any."""
    ordered = sorted(values)
    return ordered[max(0, ceil(len(ordered) * percent / 100) - 1)] if ordered else None
