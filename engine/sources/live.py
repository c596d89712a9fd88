"""Live sources: records that come while the flow runs, kept until no recovery needs them.

A live source gives each record its time once, when the record comes, and can replay it with that
time until it is told to `trim`. `QueueSource` keeps records in memory: for tests, and for producers
in the process of their front.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from operator import itemgetter

from driftline.engine.labels import INFINITY
from driftline.engine.sources.source import BadRecord


class LiveSource:
    """Base of sources whose records come while the flow runs.

    It gives a record its time once, when it comes, and can replay it with that time until it is
    told to `trim`.
    """

    name = "live"
    """How errors and progress call it."""

    durable = INFINITY
    """Records below this time survive any crash."""

    trimmed = 0
    """Records below this time were given up: they are removed, or will be."""

    obstacle = ""
    """Why records cannot be made durable at the moment, for people; "" if they can."""

    def read(self, start: int) -> Iterator[tuple[int, object] | BadRecord | None]:
        """Records with time >= `start` that are retained, then those that come.

        Gives None where there is nothing at the moment, and ends when no more records will come.
        """
        raise NotImplementedError

    def move_to(self, time: int) -> int:
        """Give no time below this one any more: other sources have sent records up to it.

        Returns the smallest time that may still come. Without it, an idle source would hold the
        others back.
        """
        raise NotImplementedError

    def stop(self) -> int:
        """Take no record any more in this process. Returns a time that all taken ones are below.

        Of a source that has ended it is finite, too: other sources may have to pass that time
        before there is room to read this one to its end.
        """
        raise NotImplementedError

    def trim(self, time: int) -> None:
        """Allow the source to remove records below this time."""

    def progress(self) -> tuple[int, int] | None:
        """None: how much will come is not known."""
        return None

    def identity(self) -> str:
        """Its name: it is the same input whatever comes."""
        return self.name


class QueueSource(LiveSource):
    """A live source of records that the same process puts in; their times are 1, 2, ..."""

    def __init__(self, name: str = "queue") -> None:
        self.name = name
        self._records: list[tuple[int, object]] = []
        self._next = 1
        self._closed = False

    def put(self, payload: object) -> int:
        """Add a record. Returns its time."""
        time = self._next
        self._next += 1
        self._records.append((time, payload))
        return time

    def close(self) -> None:
        """End the source: no more records will come."""
        self._closed = True

    def read(self, start: int) -> Iterator[tuple[int, object] | BadRecord | None]:
        after = start - 1
        while True:
            at = bisect_right(self._records, after, key=itemgetter(0))
            if at < len(self._records):
                after = self._records[at][0]
                yield self._records[at]
            elif self._closed:
                return
            else:
                yield None

    def move_to(self, time: int) -> int:
        self._next = max(self._next, time)
        return self._next

    def stop(self) -> int:
        return self._next

    def trim(self, time: int) -> None:
        self.trimmed = max(self.trimmed, min(time, self._next))
        del self._records[: bisect_left(self._records, time, key=itemgetter(0))]
