"""Events: which versions began or ceased to match watches, in 8 bytes for each event of a watch.

The versions with events are numbered, one after the other; an event is twice such a number, and one
more if the version began to match.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable
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

    def __init__(
        self, times: Iterable[int] = (), ids: Iterable[str] = (), events: Iterable[int] = ()
    ) -> None:
        self.first = 0
        """The number of the first version."""
        self.times = array("q", times)
        self.ids = list(ids)
        of_each = Counter(event // 2 for event in events)
        self._counts = array("q", [of_each[number] for number in range(len(self.ids))])
        """How many events each has."""

    def add(self, time: int, id: str, count: int) -> int:
        """The number of the next version. Precondition: no later one was added."""
        self.times.append(time)
        self.ids.append(id)
        self._counts.append(count)
        return self.first + len(self.times) - 1

    def retain(self, since: int) -> int:
        """Forget versions before a time; gives how many events they had."""
        forgotten = bisect_left(self.times, since)
        count = sum(self._counts[:forgotten])
        del self.times[:forgotten], self.ids[:forgotten], self._counts[:forgotten]
        self.first += forgotten
        return count

    def retained(self, events: array[int] | None) -> array[int]:
        """The events of a watch that are retained; None: it has none."""
        if events is None:
            return array("q")
        return events[bisect_left(events, 2 * self.first) :]

    def read(self, events: array[int] | None, since: int, limit: int) -> list[Event]:
        """The first events of a watch from a time on."""
        retained, first = self.retained(events), self.first
        begin = bisect_left(retained, 2 * (first + bisect_left(self.times, since)))
        return [
            Event(self.times[event // 2 - first], self.ids[event // 2 - first], CHANGES[event & 1])
            for event in retained[begin : begin + limit]
        ]
