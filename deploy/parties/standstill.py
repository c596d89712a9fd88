"""Standstills: a run that has work and makes no progress says what it waits for.

Takes: the time, and how far the run is. Gives: log lines, the first after 10 s, the next ones after
pauses that double; and one when there is progress again.
"""

from __future__ import annotations

from driftline.engine.events import about, log

FIRST_S = 10.0
"""Seconds without progress before the first line."""


class Standstill:
    """The standstills of one run."""

    def __init__(self) -> None:
        self._progress: object = None
        self._since = 0.0
        self._tell_after = FIRST_S

    def look(self, now: float, progress: object, has_work: bool, waits_for: str) -> None:
        """`progress`: differs from that of the last call if the run has got further."""
        stood = now - self._since
        if has_work and progress == self._progress:
            if stood >= self._tell_after:
                self._tell_after = 2 * stood
                told = about("standstill", seconds=stood, reason=waits_for)
                log.warning("no progress for %.0f s: %s", stood, waits_for, extra=told)
            return
        if self._tell_after > FIRST_S:
            told = about("standstill-over", seconds=stood)
            log.warning("there is progress again, after %.0f s", stood, extra=told)
        self._progress, self._since, self._tell_after = progress, now, FIRST_S
