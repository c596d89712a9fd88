"""What a front knows of the records it has read, if its source may change until the next start.

Takes: the time of each committed snapshot, and `AskUsed` (watch). Gives: `StoreUsed`, and
`UsedBelow`, once all that was asked for is read. Invariant: what it tells of a time is what is
below it, or says itself that it is not.
"""

from __future__ import annotations

from dataclasses import astuple

from driftline.engine.sources import RetainedSource, Source
from driftline.engine.sources.used import CheckedSource, StoreUsed
from driftline.engine.wire.messages import AskUsed, UsedBelow


class UsedRecords:
    """The records of one source; `replay`: whether they are read again after a failure."""

    def __init__(self, source: Source | RetainedSource, *, replay: bool) -> None:
        self._source = source
        self._checked = source if isinstance(source, CheckedSource) and replay else None

    def note(self, until: int, *, by_snapshot: bool) -> list[StoreUsed]:
        """The job that makes durable which records below a time were used: none if they are never
        compared. Precondition: all of them were read."""
        if self._checked is None:
            return []
        used = self._checked.used(until)
        self._checked.note(used)
        return [StoreUsed(used, by_snapshot)]

    def answer(self, question: AskUsed) -> UsedBelow | None:
        """The answer; None while not all of these records are read: who asks will ask again."""
        time, source = question.time, self._source.identity()
        if self._checked is None:
            return UsedBelow(time, source, ())
        used = self._checked.below(time)
        return None if used is None else UsedBelow(time, source, astuple(used))
