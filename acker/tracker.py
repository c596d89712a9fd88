"""The tracker of progress: which elements have been fully processed, and so are final.

Every frame has a random id. Its sender and its receiver each have it XORed into the cell of
(stage, tracking time); a node does so with one combined acknowledgement once it has fully
processed a frame: the id received and the ids of all frames sent because of it. So a cell is zero
iff nothing of that tracking time is in flight to that stage, but for a chance of 2^-63 (Storm's
acker; Delivery, consistency, and determinism, section V-A1).

Fronts need no cells: their frames, and their promises where there are no frames, *cover* intervals
of times, each beginning where the last one ended. Stage 0 is done with a front as far as intervals
without a gap have been worked off. So a root costs no message of its own.

Takes: covered intervals, acknowledgements, deliveries. Gives: `frontiers`, `processed`,
`delivered`, and `to_ask`. Invariant: no frontier ever decreases.

XOR is not idempotent: whoever calls must apply each batch exactly once (`engine.wire.party`).
Cost: O(log n) per cell touched, O(stages + fronts) per look at the frontier.
"""

from collections.abc import Sequence
from heapq import heappop, heappush

from driftline.engine.errors import MalformedMessage
from driftline.engine.labels import INFINITY


class Tracker:
    """Progress of one incarnation, from the time that it replays from."""

    def __init__(self, stages: int, fronts: int, nodes: int, start: int = 0) -> None:
        self._cells: list[dict[int, int]] = [{} for _ in range(stages + 1)]
        self._times: list[list[int]] = [[] for _ in range(stages + 1)]
        self._next = [start] * fronts
        """Per front: stage 0 is done with everything below."""
        self._chain = [0] * fronts
        """Where the covered interval has to begin that continues those without a gap."""
        self._beyond: list[dict[int, int]] = [{} for _ in range(fronts)]
        """Per front, since -> until of intervals that lie behind a gap."""
        self._sent = [0] * fronts
        """What fronts have said that they have sent up to."""
        self._durable = [start] * fronts
        self._delivered = [0] * nodes
        self._asked = [start] * fronts
        self._reached = start
        """The largest time that a front has promised before its end."""
        self._last: tuple[int, ...] = (start,) * (stages + 1)

    def promise(self, front: int, since: int, until: int, durable: int) -> None:
        """A front has nothing but what it has sent; what is below `durable` is not forgotten.

        Raises MalformedMessage for a front that is none.
        """
        if not 0 <= front < len(self._next):
            raise MalformedMessage(f"a promise of front {front}, which the flow has not")
        self._durable[front] = max(self._durable[front], durable)
        self._sent[front] = max(self._sent[front], since)
        self._cover(front, since, until)

    def _cover(self, front: int, since: int, until: int) -> None:
        """Stage 0 is done with the times of a front in [since, until)."""
        beyond = self._beyond[front]
        if until > since:
            beyond[since] = until
            if self._reached < until < INFINITY:
                self._reached = until
        while (end := beyond.pop(self._chain[front], 0)) > 0:
            self._chain[front] = end
        self._next[front] = max(self._next[front], self._chain[front])

    def acknowledge(
        self, cells: Sequence[tuple[int, int, int]], covered: Sequence[tuple[int, int, int]] = ()
    ) -> None:
        """Apply a batch of (stage, time, xor of ids) and (front, since, until) as a whole.

        Raises MalformedMessage, with nothing applied, for what does not fit the flow.
        """
        stages = [stage for stage, _, _ in cells] or [0]
        fronts = [front for front, _, _ in covered] or [0]
        if not (
            0 <= min(stages) <= max(stages) < len(self._cells)
            and 0 <= min(fronts) <= max(fronts) < len(self._next)
        ):
            raise MalformedMessage("an acknowledgement that does not fit the flow")
        for stage, time, ids in cells:
            self._flip(stage, time, ids)
        for front, since, until in covered:
            self._cover(front, since, until)

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
        frontiers[-1] = min(low, self.durable)
        found = tuple(frontiers)
        assert found == (*map(max, self._last, found),), (
            f"a frontier went back from {self._last} to {found}"
        )
        self._last = found
        return found

    @property
    def durable(self) -> int:
        """Inputs below this time are not forgotten."""
        return min(self._durable)

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

        A front is named once for each time that it is needed up to; and none that has not been
        heard of: it may not have begun, and what came too early would count as lost.
        """
        needed = max(self._next)
        if needed >= INFINITY:  # what a front has sent before its end still waits
            needed = self._reached
        asked = []
        for front, promised in enumerate(self._next):
            heard_of = self._chain[front] > 0
            if heard_of and promised < needed and self._asked[front] < needed:
                self._asked[front] = needed
                asked.append((front, needed))
        return asked

    def oldest(self) -> tuple[int, int] | None:
        """(time, stage) of the oldest work in flight, as far as it is known."""
        self.frontiers()  # clears what is done off the heaps
        work = [(times[0], stage) for stage, times in enumerate(self._times) if times]
        for done, sent in zip(self._next, self._sent, strict=True):
            if done < sent:
                work.append((done, 0))
        return min(work, default=None)

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
