"""The presence of producers, told: how many are connected, that one has ended, that all have.

Takes the number of connections that have sent something, how many producers the source knows, ends
of producers, and the time. Gives log lines: a moment after the number of connections has changed,
when there is one again, when a producer ends, and once when the stream is over. Invariant: whoever
connects however often, there are no more than twelve lines a minute about that, and six about ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from logging import INFO
from math import inf

from driftline.deploy.parties.seldom import Seldom
from driftline.engine.events import about, log
from driftline.engine.sources.logs.received import ReceivedSource
from driftline.engine.texts import counted

GONE_S = 1.0
"""Seconds without a connection before that is told: a producer may connect again at once."""

PAUSE_S = 10.0
"""Seconds between two absences, or numbers of connections, that are told, at least."""


NAMES_MAX = 5
"""Producers that a line names; of the others it has the number."""


class Presence:
    """The producers of one source; `needed`: whether nobody else gives it records."""

    def __init__(self, source: ReceivedSource, needed: bool = True) -> None:
        self._source = source
        self._needed = needed
        self._here = source.producers > 0
        """Whether there was a connection at the last look; or in an earlier call."""
        self._gone_at = inf
        """When the last connection went; inf: there is one, or there was none yet."""
        self._told = False
        """Whether it was told that there is none."""
        self._tell_at = -inf
        self._connected, self._since = 0, -inf
        """The number of connections at the last look, and when it became that."""
        self._shown = 0
        """The number that was told last."""
        self._ends = Seldom("producer-ended", f"{source.name}: a producer has ended", INFO)
        self._over = False
        """Whether it was told that the stream is over."""

    def look(self, now: float, connected: int) -> None:
        """Tell what has changed; `connected`: how many connections there are."""
        self._ends.tell(now)
        if connected != self._connected:
            self._connected, self._since = connected, now
        if self._source.stopped:
            return  # the run is to end
        if self._source.closed:
            self._tell_over()
        elif connected or not self._needed:
            if self._told:
                took = now - self._gone_at
                told = about("producers-again", name=self._source.name, seconds=took)
                log.info(
                    "%s: a producer is connected again, after %.0f s",
                    *(self._source.name, took),
                    extra=told,
                )
                self._shown = connected
            self._here, self._told, self._gone_at = True, False, inf
            if connected != self._shown and now >= max(self._since + GONE_S, self._tell_at):
                self._tell_at = now + PAUSE_S
                self._tell_number()
        elif self._here:
            self._here, self._gone_at = False, now
        elif not self._told and now >= max(self._gone_at + GONE_S, self._tell_at):
            self._told, self._tell_at = True, now + PAUSE_S
            self._shown = 0
            self._tell_none()

    def ended(self, now: float, producer: str) -> None:
        """A producer has ended."""
        source = self._source
        number, ended, known = source.accepted(producer), source.ended_producers, source.producers
        self._ends.add(now, f"{producer!r}, with record {number}; {ended} of {known} have")

    def close(self) -> None:
        """Tell what was not told yet: nobody will look again."""
        self._ends.close()

    def _tell_number(self) -> None:
        number, fewer = self._connected, self._connected < self._shown
        self._shown = number
        log.info(
            "%s: %s%s connected",
            self._source.name,
            "a connection of a producer has gone; " if fewer else "",
            f"{counted(number, 'producer')} {'is' if number == 1 else 'are'}",
            extra=about("producers-connected", name=self._source.name, connected=number),
        )

    def _tell_none(self) -> None:
        name, known, ended = self._source.name, self._source.producers, self._source.ended_producers
        missed = self._source.not_ended(NAMES_MAX)
        told = about(
            "no-producers",
            name=name,
            producers=known,
            ended=ended,
            not_ended=[{"name": producer} for producer in missed],
        )
        log.warning(
            "%s: no producer is connected, and the run waits for one. %d of %d producers that have "
            "sent records have ended (Producer.end)%s; the stream is over once all have. Ctrl-C, "
            "or SIGTERM, ends the run in good order",
            *(name, ended, known, _not_ended(missed, known - ended - len(missed))),
            extra=told,
        )

    def _tell_over(self) -> None:
        if self._over:
            return
        self._over = True
        name, known, records = self._source.name, self._source.producers, self._source.records
        log.info(
            "%s: the stream is over, as %s ended; %s",
            name,
            "its producer has" if known == 1 else f"all {known} producers have",
            counted(records, "record"),
            extra=about("stream-over", name=name, producers=known, records=records),
        )


def _not_ended(names: Sequence[str], more: int) -> str:
    """The producers that have not ended, as part of a sentence; `more`: those without a name."""
    if not names:
        return ""
    others = f" and {more} more" * (more > 0)
    return f", not {', '.join(map(repr, names))}{others}"
