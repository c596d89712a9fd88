"""The presence of producers, told: that none is connected, that one is again, that all have ended.

Takes the number of connections that have sent something, how many producers the source knows, and
the time. Gives log lines: a moment after the last connection has gone, when there is one again, and
once when the stream is over. Invariant: whoever connects however often, there are no more than
twelve lines a minute.
"""

from __future__ import annotations

from math import inf

from driftline.engine.events import about, log
from driftline.engine.sources.logs.received import ReceivedSource

GONE_S = 1.0
"""Seconds without a connection before that is told: a producer may connect again at once."""

PAUSE_S = 10.0
"""Seconds between two absences that are told, at least."""


class Presence:
    """The producers of one source."""

    def __init__(self, source: ReceivedSource) -> None:
        self._source = source
        self._here = source.producers > 0
        """Whether there was a connection at the last look; or in an earlier call."""
        self._gone_at = inf
        """When the last connection went; inf: there is one, or there was none yet."""
        self._told = False
        """Whether it was told that there is none."""
        self._tell_at = -inf
        self._over = False
        """Whether it was told that the stream is over."""

    def look(self, now: float, connected: int) -> None:
        """Tell what has changed; `connected`: how many connections there are."""
        if self._source.stopped:
            return  # the run is to end
        if self._source.closed:
            self._tell_over()
        elif connected:
            if self._told:
                took = now - self._gone_at
                told = about("producers-again", name=self._source.name, seconds=took)
                log.info(
                    "%s: a producer is connected again, after %.0f s",
                    *(self._source.name, took),
                    extra=told,
                )
            self._here, self._told, self._gone_at = True, False, inf
        elif self._here:
            self._here, self._gone_at = False, now
        elif not self._told and now >= max(self._gone_at + GONE_S, self._tell_at):
            self._told, self._tell_at = True, now + PAUSE_S
            self._tell_none()

    def _tell_none(self) -> None:
        name, known, ended = self._source.name, self._source.producers, self._source.ended_producers
        log.info(
            "%s: no producer is connected, and the run waits for one. %d of %d producers that have "
            "sent records have ended (Producer.end); the stream is over once all have. Ctrl-C, or "
            "SIGTERM, ends the run in good order",
            *(name, ended, known),
            extra=about("no-producers", name=name, producers=known, ended=ended),
        )

    def _tell_over(self) -> None:
        if self._over:
            return
        self._over = True
        name, known, records = self._source.name, self._source.producers, self._source.records
        log.info(
            "%s: the stream is over, as all %d producers have ended; %d records",
            *(name, known, records),
            extra=about("stream-over", name=name, producers=known, records=records),
        )
