"""The tracker of progress: says which elements have been worked off, and so are final.

Every frame has a random id. Its sender and its receiver each XOR the id into the cell of
(stage, tracking time). A node that has worked off a frame does so with one acknowledgement: the id
of that frame and the ids of all frames that it has sent because of it. So a cell is zero iff no
frame of that tracking time is under way to that stage, except with probability 2^-63 (Storm's
acker; Delivery, consistency, and determinism, section V-A1).

Fronts need no cells. Their frames *cover* intervals of times, and promises cover the times without
a frame; each interval begins where the one before it ends. Stage 0 is done with a front up to the
end of the intervals that have been worked off without a gap. So a root costs no message.

An example: one front, one node, two stages. The record of time 1 makes a frame with id 77 for
stage 1; both are worked off, then the front ends.

    >>> from driftline.engine.labels import INFINITY
    >>> tracker = Tracker(stages=2, fronts=1, nodes=1)
    >>> tracker.promise(front=0, since=0, until=0, durable=INFINITY)
    >>> tracker.acknowledge([(1, 1, 77)], covered=[(0, 0, 2)])  # stage 0 is done with times 0, 1
    >>> tracker.frontiers()  # of stage 0, of stage 1, of outputs: 77 is under way
    (2, 1, 1)
    >>> tracker.acknowledge([(1, 1, 77)])  # 77 XOR 77 = 0: stage 1 is done with it
    >>> tracker.frontiers()
    (2, 2, 2)
    >>> tracker.promise(front=0, since=2, until=INFINITY, durable=INFINITY)  # the front has ended
    >>> tracker.processed == INFINITY, tracker.delivered
    (True, 0)
    >>> tracker.deliver(node=0, time=INFINITY)  # the consumer has all outputs of node 0
    >>> tracker.delivered == INFINITY
    True

Takes: covered intervals, acknowledgements, deliveries. Gives: `frontiers`, `processed`,
`delivered`, and `to_ask`. Invariant: no frontier ever decreases.

Precondition: each acknowledgement is applied exactly once, as XOR is not idempotent
(`engine.wire.party` sees to it). Cost: O(log n) per cell, O(stages + fronts) per `frontiers`.
"""

from collections.abc import Sequence
from heapq import heappop, heappush
from operator import le

from driftline.engine.errors import MalformedMessage
from driftline.engine.labels import INFINITY


def token(node: int, start: int) -> tuple[int, int, int]:
    """The cell that holds all frontiers back until a node has said which frames it sends again."""
    return 0, start, 1 << node


class Tracker:
    """Progress of one incarnation, from the time that it replays from."""

    def __init__(self, stages: int, fronts: int, nodes: int, start: int = 0) -> None:
        self._cells: list[dict[int, int]] = [{} for _ in range(stages + 1)]
        self._times: list[list[int]] = [[] for _ in range(stages + 1)]
        self._next = [start] * fronts
        """Per front: stage 0 is done with all smaller times."""
        self._covered = [0] * fronts
        """Per front: all smaller times are in covered intervals, without a gap."""
        self._beyond: list[dict[int, int]] = [{} for _ in range(fronts)]
        """Per front, since -> until of covered intervals that lie behind a gap."""
        self._sent = [0] * fronts
        """Per front: it has sent everything below this time."""
        self._durable = [start] * fronts
        self._delivered = [0] * nodes
        self._asked = [start] * fronts
        self.reached = start
        """The largest time that a front has promised before its end: no element has it, or a later
        one, once all fronts have ended."""
        self._last: tuple[int, ...] = (start,) * (stages + 1)

    def promise(self, front: int, since: int, until: int, durable: int) -> None:
        """A front will send no record with a time in [since, until).

        `durable`: its records below this time will survive a crash of the front. Raises
        MalformedMessage if there is no such front.
        """
        if not 0 <= front < len(self._next):
            raise MalformedMessage(
                f"a promise of front {front}, but the flow has {len(self._next)} fronts"
            )
        self._durable[front] = max(self._durable[front], durable)
        self._sent[front] = max(self._sent[front], since)
        self._cover(front, since, until)

    def _cover(self, front: int, since: int, until: int) -> None:
        """Stage 0 is done with the times of a front in [since, until)."""
        beyond = self._beyond[front]
        if until > since:
            beyond[since] = until
            if self.reached < until < INFINITY:
                self.reached = until
        while (end := beyond.pop(self._covered[front], 0)) > 0:
            self._covered[front] = end
        self._next[front] = max(self._next[front], self._covered[front])

    def acknowledge(
        self, cells: Sequence[tuple[int, int, int]], covered: Sequence[tuple[int, int, int]] = ()
    ) -> None:
        """A node has worked off frames: cells (stage, time, XOR of ids), and covered intervals
        (front, since, until).

        Raises MalformedMessage, and applies nothing, if there is no such stage or front.
        """
        stages, fronts = len(self._cells), len(self._next)
        for stage, _, _ in cells:
            if not 0 <= stage < stages:
                raise MalformedMessage(f"an acknowledgement for stage {stage}, which is not there")
        for front, _, _ in covered:
            if not 0 <= front < fronts:
                raise MalformedMessage(f"an acknowledgement for front {front}, which is not there")
        for stage, time, ids in cells:
            self._flip(stage, time, ids)
        for front, since, until in covered:
            self._cover(front, since, until)

    def deliver(self, node: int, time: int) -> None:
        """The consumer has the outputs of a node below a time."""
        self._delivered[node] = max(self._delivered[node], time)

    def frontiers(self) -> tuple[int, ...]:
        """Per stage: every element with a smaller time has been worked off there and before.

        The last number is the frontier of outputs, which also waits until inputs are durable.
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
        if found != self._last:
            assert all(map(le, self._last, found)), (
                f"a frontier went back from {self._last} to {found}"
            )
            self._last = found
        return self._last

    @property
    def durable(self) -> int:
        """Inputs below this time survive a crash of their front."""
        return min(self._durable)

    @property
    def waits_for_logs(self) -> bool:
        """Whether elements are worked off whose inputs a crash of their front may lose."""
        self.frontiers()  # removes finished times from the heaps
        return self.durable < min([*self._next, *(times[0] for times in self._times if times)])

    @property
    def processed(self) -> int:
        """All elements below this time have been worked off in all stages."""
        return self.frontiers()[-1]

    @property
    def delivered(self) -> int:
        """Consumers have all outputs below this time."""
        return min(self.processed, *self._delivered)

    def undelivered(self) -> list[int]:
        """The nodes with outputs that are processed and that the consumer does not have."""
        processed = self.processed
        return [node for node, time in enumerate(self._delivered) if time < processed]

    def to_ask(self) -> list[tuple[int, int]]:
        """(front, time): idle fronts to be asked for a promise up to a time.

        Only their missing promises hold the frontier back behind the other fronts. A front is named
        once for each time. A front that has promised nothing yet is not named: it may not be in
        this incarnation yet, and would take the question for a lost message.
        """
        needed = max(self._next)
        if needed >= INFINITY:  # what a front has sent before its end still waits
            needed = self.reached
        asked = []
        for front, promised in enumerate(self._next):
            has_begun = self._covered[front] > 0
            if has_begun and promised < needed and self._asked[front] < needed:
                self._asked[front] = needed
                asked.append((front, needed))
        return asked

    def oldest(self) -> tuple[int, int] | None:
        """(time, stage) of the oldest frame under way that the tracker knows of, if any."""
        self.frontiers()  # removes finished times from the heaps
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


class ReportedProgress:
    """The progress of one incarnation, from time `start`, as its nodes report it: what the master
    knows in label order.

    Every node has a `Tracker`, which hears everything; each frontier of each of them is true by
    itself. So the largest is, too, and a master needs no tracker: a new one knows the progress as
    soon as every node has said once how far it is (`Reached`). Invariant: `processed` and
    `delivered` never decrease.
    """

    def __init__(self, nodes: int, start: int = 0) -> None:
        self.processed = start
        """All elements below this time have been worked off in all stages."""
        self.reached = start
        """The largest time that a front has promised before its end."""
        self._delivered = [0] * nodes
        self._left: list[int | None] = [None] * nodes
        self._oldest: list[tuple[int, int] | None] = [None] * nodes
        self._waits = [False] * nodes

    def tell(
        self,
        node: int,
        processed: int,
        delivered: int,
        reached: int,
        oldest: Sequence[int],
        waits: bool,
        left: int = -1,
    ) -> None:
        """A node tells how far it is; see `Reached`."""
        self.processed = max(self.processed, processed)
        self.reached = max(self.reached, reached)
        self._delivered[node] = max(self._delivered[node], delivered)
        self._oldest[node] = (oldest[0], oldest[1]) if len(oldest) == 2 else None
        self._waits[node] = waits
        before = self._left[node]
        self._left[node] = left if before is None else max(before, left)

    @property
    def delivered(self) -> int:
        """Consumers have all outputs below this time."""
        return min(self.processed, *self._delivered)

    @property
    def left(self) -> int | None:
        """No output with a later time has left a node; None until all of them have said that."""
        known = [left for left in self._left if left is not None]
        return max(known) if len(known) == len(self._left) else None

    @property
    def waits_for_logs(self) -> bool:
        """Whether a node knows of work that is done and waits for the input log of a front."""
        return any(self._waits)

    def undelivered(self) -> list[int]:
        """The nodes with outputs that are processed and that the consumer does not have."""
        return [node for node, time in enumerate(self._delivered) if time < self.processed]

    def oldest(self) -> tuple[int, int] | None:
        """(time, stage) of the oldest work under way that a node knows of, if any."""
        return min((oldest for oldest in self._oldest if oldest is not None), default=None)

    def to_ask(self) -> list[tuple[int, int]]:
        """No front: nodes ask idle fronts themselves, as they know sooner."""
        return []
