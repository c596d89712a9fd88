"""Whether T stands still while records wait for it."""

from __future__ import annotations


class Standing:
    """For how long records have waited since T has last gone on.

    >>> standing = Standing()
    >>> standing.taken(7, now=1.0)
    >>> standing.taken(9, now=3.0)
    >>> standing.seconds(now=4.0)
    3.0
    >>> standing.passed(8, now=5.0)
    >>> standing.seconds(now=7.0)
    2.0
    >>> standing.passed(10, now=8.0)
    >>> standing.seconds(now=9.0)
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
