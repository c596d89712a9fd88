"""What a gateway watches: how long answers take, and whether T goes on."""

from __future__ import annotations

from collections import deque

WINDOW_S = 10.0
"""What is of late."""

DURATIONS_MAX = 2_000
"""The last ones that are kept."""


class LatencyWindow:
    """Durations of the last seconds; `name`: what took so long.

    >>> answers = LatencyWindow("answer")
    >>> for seconds in (0.001, 0.002, 0.009):
    ...     answers.add(100.0, seconds)
    >>> answers.figures(101.0)
    {'answer_p50_s': 0.002, 'answer_p99_s': 0.009}
    >>> answers.figures(200.0)
    {}
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._taken: deque[tuple[float, float]] = deque(maxlen=DURATIONS_MAX)
        """When, and how long."""

    def add(self, now: float, seconds: float) -> None:
        """It has taken so long."""
        self._taken.append((now, seconds))

    def figures(self, now: float) -> dict[str, float]:
        """The median and the 99th percentile, if there was any."""
        found = sorted(seconds for at, seconds in self._taken if at >= now - WINDOW_S)
        if not found:
            return {}
        return {
            f"{self._name}_p50_s": found[len(found) // 2],
            f"{self._name}_p99_s": found[len(found) * 99 // 100],
        }


class ViewStallDetector:
    """For how long records have waited since T has last gone on: it may stand still.

    >>> detector = ViewStallDetector()
    >>> detector.taken(7, now=1.0)
    >>> detector.taken(9, now=3.0)
    >>> detector.seconds(now=4.0)
    3.0
    >>> detector.passed(8, now=5.0)
    >>> detector.seconds(now=7.0)
    2.0
    >>> detector.passed(10, now=8.0)
    >>> detector.seconds(now=9.0)
    0.0
    """

    def __init__(self) -> None:
        self._time = 0
        self._last = -1
        self._since = 0.0

    def taken(self, time: int, now: float) -> None:
        """A record has got this label time."""
        if self._last < self._time:
            self._since = now
        self._last = max(self._last, time)

    def passed(self, time: int, now: float) -> None:
        """T is there."""
        if time > self._time:
            self._time, self._since = time, now

    def seconds(self, now: float) -> float:
        """For how long; 0: none waits."""
        return now - self._since if self._last >= self._time else 0.0
