"""Monitors of a gateway: a window of recent delays, and a detector of a stalled journal."""

from __future__ import annotations

from collections import deque

WINDOW_S = 10.0
"""Length of a `LatencyWindow` in seconds."""

DELAYS_MAX = 2_000
"""Maximum number of delays in a window; it keeps the newest ones."""


class LatencyWindow:
    """Sliding window of delays over `WINDOW_S`.

    >>> delays = LatencyWindow()
    >>> for seconds in (0.001, 0.002, 0.009):
    ...     delays.add(100.0, seconds)
    >>> delays.figures(101.0)
    {'delay_p50_s': 0.002, 'delay_p99_s': 0.009}
    >>> delays.figures(200.0)
    {}
    """

    def __init__(self) -> None:
        self._samples: deque[tuple[float, float]] = deque(maxlen=DELAYS_MAX)
        """(time of the measurement, delay) in seconds, oldest first."""

    def add(self, now: float, seconds: float) -> None:
        """Add a delay, measured at `now`."""
        self._samples.append((now, seconds))

    def figures(self, now: float) -> dict[str, float]:
        """Return the median and the 99th percentile by name; {} if there are no recent delays."""
        delays = sorted(seconds for at, seconds in self._samples if at >= now - WINDOW_S)
        if not delays:
            return {}
        return {
            "delay_p50_s": delays[len(delays) // 2],
            "delay_p99_s": delays[len(delays) * 99 // 100],
        }


class StallDetector:
    """Detector of a stalled journal: measures for how long records wait while T does not advance.

    >>> detector = StallDetector()
    >>> detector.note_write(7, now=1.0)
    >>> detector.note_write(9, now=3.0)
    >>> detector.stalled_s(now=4.0)
    3.0
    >>> detector.note_progress(8, now=5.0)
    >>> detector.stalled_s(now=7.0)
    2.0
    >>> detector.note_progress(10, now=8.0)
    >>> detector.stalled_s(now=9.0)
    0.0
    """

    def __init__(self) -> None:
        self._time = 0
        """The largest T so far."""
        self._newest_record = -1
        """The largest label time of a record so far."""
        self._since = 0.0
        """When records began to wait, or T last advanced if that is later (seconds, monotonic)."""

    def note_write(self, time: int, now: float) -> None:
        """Note that a record with this label time is durable."""
        if self._newest_record < self._time:
            self._since = now
        self._newest_record = max(self._newest_record, time)

    def note_progress(self, time: int, now: float) -> None:
        """Note that T has reached this time."""
        if time > self._time:
            self._time, self._since = time, now

    def stalled_s(self, now: float) -> float:
        """Return for how many seconds records have waited without progress; 0 if none waits."""
        return now - self._since if self._newest_record >= self._time else 0.0
