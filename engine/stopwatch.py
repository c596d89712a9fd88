"""A stopwatch: for how long something was so, all times together.

    >>> full = Stopwatch()
    >>> full.look(True, 10.0)
    >>> full.look(True, 11.0)
    >>> full.total(12.0)
    2.0
    >>> full.look(False, 13.0)
    >>> full.total(20.0)
    3.0

It has no clock: whoever looks says the time. Another thread may ask for the total at any time, as
the state is one value.
"""

from __future__ import annotations


class Stopwatch:
    """Counts the seconds during which a condition holds."""

    __slots__ = ("_state",)

    def __init__(self) -> None:
        self._state: tuple[float, float | None] = (0.0, None)
        """(seconds of the times that are over, since when it is so; None: it is not)"""

    def look(self, on: bool, now: float) -> None:
        """Whether it is so now; `now`: seconds, monotonic."""
        seconds, since = self._state
        if since is None:
            if on:
                self._state = seconds, now
        elif not on:
            self._state = seconds + now - since, None

    def total(self, now: float) -> float:
        """For how many seconds it was so."""
        seconds, since = self._state
        return seconds if since is None else seconds + max(0.0, now - since)
