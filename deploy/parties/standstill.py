"""Standstills: a run that has work and makes no progress says what it waits for.

Takes: the time, how far the run is, and that it was asked to end. Gives: log lines, the first after
10 s, the next ones after pauses that double; one 3 s after the run was asked to end, if it stands
still then, and from there on one every 30 s; and one when there is progress again.
"""

from __future__ import annotations

from math import inf

from driftline.engine.events import about, log

FIRST_S = 10.0
"""Seconds without progress before the first line."""

END_S = 3.0
"""Seconds from the moment in which a run was asked to end to a line."""

ENDING_EVERY_S = 30.0
"""The longest pause between two lines of a run that was asked to end."""


class Standstill:
    """The standstills of one run."""

    def __init__(self) -> None:
        self._progress: object = None
        self._since = 0.0
        self._tell_after = FIRST_S
        self._told = False
        self._pause_max = inf

    def asked_to_end(self, now: float) -> None:
        """Somebody waits for the end of the run, and wants to know what it waits for."""
        self._tell_after = min(self._tell_after, now - self._since + END_S)
        self._pause_max = ENDING_EVERY_S

    def look(self, now: float, progress: object, has_work: bool, waits_for: str) -> None:
        """`progress`: differs from that of the last call if the run has got further."""
        stood = now - self._since
        if has_work and progress == self._progress:
            if stood >= self._tell_after:
                pause = min(max(FIRST_S, 2 * stood) - stood, self._pause_max)
                self._tell_after, self._told = stood + pause, True
                told = about("standstill", seconds=stood, reason=waits_for)
                log.warning("no progress for %.0f s: %s", stood, waits_for, extra=told)
            return
        if self._told:
            told = about("standstill-over", seconds=stood)
            log.warning("there is progress again, after %.0f s", stood, extra=told)
        self._progress, self._since = progress, now
        self._tell_after, self._told = FIRST_S, False
