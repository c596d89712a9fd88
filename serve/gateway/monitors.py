"""What a gateway watches: how long answers take, whether processes live, and whether T goes on."""

from __future__ import annotations

from collections import deque

LOOK_EVERY_S = 0.5
"""How often the loop shows that it goes on."""

GAP_S = 2.0
"""A longer time between two looks means that the loop, or the machine, stood still."""

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


class LivenessMonitor:
    """When each process beside the gateway was heard last: one that hangs does not end by itself.

    Takes: that something has come from a process, and a look now and then, both in the gateway's
    loop. Gives: for how long a process has been silent. Invariants: only a process that was heard
    since it was started is silent, as starting may take as long as it likes; and time in which the
    loop itself stood still does not count, as nothing could be heard then. Times are in seconds,
    monotonic.
    """

    def __init__(self) -> None:
        self._heard: dict[str, float] = {}
        self._looked = self._awake_since = 0.0

    def heard(self, name: str, now: float) -> None:
        """Something has come from a process."""
        self._heard[name] = now

    def look(self, now: float) -> None:
        """The loop goes on."""
        if now - self._looked > GAP_S:
            self._awake_since = now
        self._looked = now

    def silent_s(self, name: str, started: float) -> float:
        """For how long nothing has come from a process that was started at a time."""
        heard = self._heard.get(name, 0.0)
        return self._looked - max(heard, self._awake_since) if heard > started else 0.0


class StallDetector:
    """For how long records have waited since T has last gone on: it may stand still.

    >>> detector = StallDetector()
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
