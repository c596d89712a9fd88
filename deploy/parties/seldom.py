"""Log lines about what strangers may do at will: one line at once, then a count every 10 s at most.

Takes what happens, and the time: who has made it calls `tell` again and again, whether something
happens or not, and `close` at the end. So everything that happens is in a line. Invariant: however
often it happens, there are no more than six lines a minute, and one at the end.
"""

from __future__ import annotations

from logging import WARNING
from math import inf

from driftline.engine.events import about, log

PAUSE_S = 10.0
"""Seconds between two lines, at least, by default."""


class Seldom:
    """The lines about one kind of event."""

    def __init__(
        self, event: str, what: str, level: int = WARNING, pause_s: float = PAUSE_S
    ) -> None:
        """`event`: its name in the fields of a line; `what`: who has done what; `pause_s`: seconds
        between two lines, at least."""
        self._event = event
        self._what = what
        self._level = level
        self._pause_s = pause_s
        self._last = ""
        self._count = 0
        """Events since the last line."""
        self._next_at = -inf

    @property
    def waits(self) -> bool:
        """Whether something has happened of which no line tells yet."""
        return self._count > 0

    def add(self, now: float, reason: str, count: int = 1) -> None:
        """It has happened, so many times. `now`: the time in seconds."""
        self._count += count
        self._last = reason
        self.tell(now)

    def tell(self, now: float) -> None:
        """Log what has happened since the last line, if it is time to."""
        if self._count and now >= self._next_at:
            self._next_at = now + self._pause_s
            self.close()

    def close(self) -> None:
        """Log what has happened since the last line, whatever the time: nobody will ask again."""
        count, self._count = self._count, 0
        if count:
            self._log(count, self._last)

    def _log(self, count: int, last: str) -> None:
        times = f" {count} times since the last such line, the last time" * (count > 1)
        told = about(self._event, count=count, reason=last)
        log.log(self._level, "%s%s: %s", self._what, times, last, extra=told)
