"""Replays, told: from where a front reads again after a recovery, how far it is, when it is done.

Takes: the start of an incarnation, and the time below which all records are settled. Gives: log
lines, two for a replay, and one every few seconds in a long one.
"""

from __future__ import annotations

from driftline.engine.events import about, log
from driftline.engine.texts import time_in_words

TOLD_EVERY_S = 5.0
"""How often a long replay is told, in seconds."""


class Replay:
    """The replays of one front."""

    def __init__(self, front: str, source: str) -> None:
        self._front = front
        self._source = source
        self._since = self._until = 0
        self._began = self._tell_at = 0.0

    def begin(self, now: float, since: int, furthest: int) -> None:
        """Records are read from time `since` on; those up to `furthest` had been read before."""
        self._since, self._until = since, furthest if since <= furthest else 0
        self._began, self._tell_at = now, now + TOLD_EVERY_S
        if self._until:
            told = about(
                "replay", name=self._front, source=self._source, since=since, until=furthest
            )
            log.info(
                "%s reads %s again from %s to %s",
                *(self._front, self._source, time_in_words(since), time_in_words(furthest)),
                extra=told,
            )

    def look(self, now: float, settled: int) -> None:
        """All records below time `settled` are settled."""
        if not self._until:
            return
        took = now - self._began
        if settled > self._until:
            told = about("caught-up", name=self._front, seconds=took, time=self._until)
            text = "%s has caught up after %.1f s, at %s"
            log.info(text, self._front, took, time_in_words(self._until), extra=told)
            self._until = 0
        elif now >= self._tell_at:
            self._tell_at = now + TOLD_EVERY_S
            done = max(0, settled - self._since) / (self._until - self._since + 1)
            told = about("replaying", name=self._front, percent=round(100 * done), seconds=took)
            log.info("%s has caught up by %.0f %%", self._front, 100 * done, extra=told)


def given_up(source: str, start: int, trimmed: int) -> str:
    """Why a replay is impossible: records before `trimmed` are there no more; for people."""
    return (
        f"{source}: a replay from {time_in_words(start)} on is needed, but records before "
        f"{time_in_words(trimmed)} were given up when newer snapshots were committed, which cannot "
        "be loaded any more: restore the state directory"
    )
