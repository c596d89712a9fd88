"""The tracker of progress: which elements have been fully processed, and so are final.

Every frame has a random id. Its sender and its receiver each have it XORed into the cell of
(stage, tracking time); a node does so with one combined acknowledgement once it has fully
processed a frame: the id received and the ids of all frames sent because of it. A front
registers a root in the message that also promises its next time. So a cell is zero iff nothing
of that tracking time is in flight to that stage, but for a chance of 2^-63 (Storm's acker;
Delivery, consistency, and determinism, section V-A1).

Takes: promises, acknowledgements, deliveries. Gives: `frontiers`, `processed`, `delivered`, and
`to_ask`. Invariant: no frontier ever decreases.

XOR is not idempotent: whoever calls must apply each batch exactly once (`engine.party`).
Cost: O(log n) per cell touched, O(stages + fronts) per look at the frontier.
"""

from collections.abc import Iterable
from heapq import heappop, heappush

from engine.labels import INFINITY


class Tracker:
    """Progress of one incarnation, from the time that it replays from."""

    def __init__(self, stages: int, fronts: int, nodes: int, start: int = 0) -> None:
        self._cells: list[dict[int, int]] = [{} for _ in range(stages + 1)]
        self._times: list[list[int]] = [[] for _ in range(stages + 1)]
        self._next = [start] * fronts
        self._durable = [start] * fronts
        self._delivered = [0] * nodes
        self._asked = [start] * fronts
        self._last: tuple[int, ...] = (start,) * (stages + 1)

    def promise(
        self, front: int, next_time: int, durable: int, roots: Iterable[tuple[int, int]]
    ) -> None:
        """A front registers roots and promises that its next time is not below `next_time`."""
        for time, ids in roots:
            self._flip(0, time, ids)
        self._next[front] = max(self._next[front], next_time)
        self._durable[front] = max(self._durable[front], durable)

    def acknowledge(self, cells: Iterable[tuple[int, int, int]]) -> None:
        """Apply one batch of (stage, time, xor of ids) as a whole."""
        for stage, time, ids in cells:
            self._flip(stage, time, ids)

    def deliver(self, node: int, time: int) -> None:
        """The consumer has the outputs of a node below a time."""
        self._delivered[node] = max(self._delivered[node], time)

    def frontiers(self) -> tuple[int, ...]:
        """Per stage: every element with a smaller time has been fully processed there.

        The last number is the frontier of outputs; it also waits until inputs are durable.
        """
        low = min(self._next)
        frontiers = []
        for stage, times in enumerate(self._times):
            cells = self._cells[stage]
            while times and times[0] not in cells:
                heappop(times)
            if times and times[0] < low:
                low = times[0]
            frontiers.append(low)
        frontiers[-1] = min(low, *self._durable)
        found = tuple(frontiers)
        assert all(a <= b for a, b in zip(self._last, found, strict=True)), (
            f"a frontier went back from {self._last} to {found}"
        )
        self._last = found
        return found

    @property
    def processed(self) -> int:
        """Nothing below this time needs any more work, delivery aside."""
        return self.frontiers()[-1]

    @property
    def delivered(self) -> int:
        """Consumers have everything below this time."""
        return min(self.processed, *self._delivered)

    def to_ask(self) -> list[tuple[int, int]]:
        """(front, time): idle fronts whose missing promise alone holds back others' roots.

        A front is named once for each time that it is needed up to.
        """
        needed = max(self._next)
        if needed >= INFINITY:
            needed = max((n for n in self._next if n < INFINITY), default=0)
        asked = []
        for front, promised in enumerate(self._next):
            if promised < needed and self._asked[front] < needed:
                self._asked[front] = needed
                asked.append((front, needed))
        return asked

    def oldest(self) -> tuple[int, int] | None:
        """(time, stage) of the oldest work in flight."""
        self.frontiers()  # clears what is done off the heaps
        return min(((times[0], s) for s, times in enumerate(self._times) if times), default=None)

    def _flip(self, stage: int, time: int, ids: int) -> None:
        cells = self._cells[stage]
        before = cells.get(time)
        if before is None:
            if ids:
                cells[time] = ids
                heappush(self._times[stage], time)
        elif before == ids:
            del cells[time]
        else:
            cells[time] = before ^ ids
