"""Events: which versions began or ceased to match watches, in 8 bytes for each event of a watch.

The versions with events are numbered, one after the other; an event is twice such a number, and one
more if the version began to match.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from typing import Literal, NamedTuple

Change = Literal["begins", "ceases"]
CHANGES: tuple[Change, Change] = "ceases", "begins"


class Event(NamedTuple):
    """`time`: the label time of the version; `id`: of its document."""

    time: int
    id: str
    change: Change


class Changes:
    """The versions that made events, as far back as they are retained."""

    def __init__(self) -> None:
        self.first = 0
        """The number of the first version."""
        self.times = array("q")
        self.ids: list[str] = []
        self.counts = array("q")
        """How many events each has."""

    def add(self, time: int, id: str, count: int) -> int:
        """The number of the next version. Precondition: no later one was added."""
        self.times.append(time)
        self.ids.append(id)
        self.counts.append(count)
        return self.first + len(self.times) - 1

    def retain(self, since: int) -> int:
        """Forget versions before a time; gives how many events they had."""
        forgotten = bisect_left(self.times, since)
        count = sum(self.counts[:forgotten])
        del self.times[:forgotten], self.ids[:forgotten], self.counts[:forgotten]
        self.first += forgotten
        return count

    def swept(self, events: array[int]) -> array[int]:
        """The events of a watch that are retained."""
        return events[bisect_left(events, 2 * self.first) :]

    def read(self, events: array[int], since: int, limit: int) -> list[Event]:
        """The first events of a watch from a time on."""
        begin = bisect_left(events, 2 * (self.first + bisect_left(self.times, since)))
        return [
            Event(self.times[number], self.ids[number], CHANGES[event & 1])
            for event in events[begin : begin + limit]
            for number in (event // 2 - self.first,)
        ]
