"""Progress tracker: computes which elements are fully processed, and therefore final.

Every frame has a random id. Its sender and its receiver each XOR the id into the cell of
(stage, tracking time). The *tracking time* of a frame is at most the smallest time in it; all its
elements are tracked under that time. A node acknowledges a processed frame once, with the id of
that frame and the ids of all frames that it sent as a result. So a cell is zero only if no frame of
that tracking time is in flight to that stage, except with probability 2^-63 (Storm's acker; paper
"Delivery, consistency, and determinism", section V-A1). Two other things keep a cell non-zero: the
hold of the elements that wait at a `BufferingGate`, and a `blocking_cell`.

Fronts need no cells. Their frames *cover* intervals of times, and promises cover the times without
a frame; each interval begins where the previous one ends. An interval counts once its frame is
acknowledged or the promise arrives. Stage 0 is done with all times of a front up to the first gap
between counted intervals. So fronts send no message to the tracker per root element.

Example: one front, one node, two stages. The record of time 1 produces a frame with id 77 for
stage 1; both are processed, then the front ends.

    >>> from driftline.engine.labels import INFINITY
    >>> tracker = Tracker(stages=2, fronts=1, nodes=1)
    >>> tracker.promise(front=0, since=0, until=0, durable=INFINITY)  # inputs are durable at once
    >>> tracker.acknowledge([(1, 1, 77)], covered=[(0, 0, 2)])  # stage 0 is done with times 0, 1
    >>> tracker.frontiers()  # of stage 0, of stage 1, of outputs: 77 is in flight
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

An operator with timers (`engine.operators.timed`) applies the elements of a time once all of them
have `arrived`. Like a front, it then covers an interval of times: it has emitted all its outputs
with these times. A *coverer* is a front, or an operator with timers at one node. Coverers are
numbered: fronts first, then these operators in the order of the argument `waiting`.

Inputs: covered intervals, acknowledgements, deliveries. Outputs: `frontiers`, `processed`,
`delivered`, and `take_lagging_fronts`. Invariant: no frontier ever decreases.

Precondition: each acknowledgement is applied exactly once, as XOR is not idempotent
(`engine.wire.role` ensures it). Cost: O(log n) per cell, with n times in flight; O(stages +
coverers) per `frontiers`.
"""

from collections.abc import Iterable, Sequence
from heapq import heappop, heappush
from operator import le

from driftline.engine.errors import MalformedMessage
from driftline.engine.labels import INFINITY


def blocking_cell(node: int, start: int) -> tuple[int, int, int]:
    """Return a node's cell that keeps all frontiers from passing time `start`.

    Under strong-productions, the master's tracker begins each incarnation with one for each node. A
    node clears its cell when it reports the frames that it sends again.
    """
    return 0, start, 1 << node


class Tracker:
    """Progress of one incarnation, from the time at which its replay starts.

    `stages`: number of stages of the flow; the tracker adds one for outputs that are not released
    yet. `waiting`: the stage of each operator with timers, once per node.
    """

    def __init__(
        self, stages: int, fronts: int, nodes: int, start: int = 0, waiting: Iterable[int] = ()
    ) -> None:
        stages_of_waiting = list(waiting)
        self._fronts = fronts
        self._waiting: list[list[int]] = [[] for _ in range(stages + 1)]
        """Per stage: the coverer numbers of its operators with timers."""
        self.arrived: dict[int, int] = dict.fromkeys(stages_of_waiting, start)
        """Per stage of operators with timers: the time below which all its elements have arrived,
        at the last call of `frontiers`."""
        for number, stage in enumerate(stages_of_waiting, fronts):
            self._waiting[stage].append(number)
        coverers = fronts + len(stages_of_waiting)
        self._cells: list[dict[int, int]] = [{} for _ in range(stages + 1)]
        """Per stage: time -> XOR of the ids of the frames in flight, without zeros."""
        self._times: list[list[int]] = [[] for _ in range(stages + 1)]
        """Per stage: heap of the times in `_cells`, and of finished times not removed yet."""
        self._done_below = [start] * coverers
        """Per front: stage 0 is done with all smaller times. Then, per operator with timers: it
        has emitted everything with a smaller time."""
        self._covered = [0] * fronts + [start] * len(stages_of_waiting)
        """Per coverer: covered intervals contain all smaller times, without a gap. For a front, 0
        means that no interval is covered yet."""
        self._after_gap: list[dict[int, int]] = [{} for _ in range(coverers)]
        """Per coverer: covered intervals (since -> until) that begin after a gap."""
        self._sent = [0] * fronts
        """Per front: the front has sent all its records below this time."""
        self._durable = [start] * fronts
        """Per front: the records below this time survive a crash of the front."""
        self._delivered = [0] * nodes
        """Per node: the consumer has the node's outputs below this time."""
        self._requested = [start] * fronts
        """Per front: the largest time that `take_lagging_fronts` has returned."""
        self.reached = start
        """The largest finite end of a covered interval. Once all fronts have ended, every element
        has a smaller time."""
        self._last: tuple[int, ...] = (start,) * (stages + 1)
        """The newest result of `frontiers`."""

    def promise(self, front: int, since: int, until: int, durable: int) -> None:
        """Record that a front will send no record with a time in [since, until).

        `durable`: the front's records below this time survive its crash. Raises MalformedMessage
        if there is no such front.
        """
        if not 0 <= front < self._fronts:
            raise MalformedMessage(
                f"a promise of front {front}, but the flow has {self._fronts} fronts"
            )
        self._durable[front] = max(self._durable[front], durable)
        self._sent[front] = max(self._sent[front], since)
        self._cover(front, since, until)

    def _cover(self, coverer: int, since: int, until: int) -> None:
        """Add a covered interval: stage 0 is done with these times of a front, or an operator with
        timers has emitted everything with these times."""
        after_gap = self._after_gap[coverer]
        if until > since:
            after_gap[since] = until
            if self.reached < until < INFINITY:
                self.reached = until
        while (end := after_gap.pop(self._covered[coverer], 0)) > 0:
            self._covered[coverer] = end
        self._done_below[coverer] = max(self._done_below[coverer], self._covered[coverer])

    def acknowledge(
        self, cells: Sequence[tuple[int, int, int]], covered: Sequence[tuple[int, int, int]] = ()
    ) -> None:
        """Apply a node's acknowledgement of processed frames: cells (stage, time, XOR of ids), and
        covered intervals (coverer, since, until).

        Raises MalformedMessage, and applies nothing, if there is no such stage or coverer.
        """
        stages, coverers = len(self._cells), len(self._done_below)
        for stage, _, _ in cells:
            if not 0 <= stage < stages:
                raise MalformedMessage(
                    f"an acknowledgement for stage {stage}, but the last stage is {stages - 1}"
                )
        for coverer, _, _ in covered:
            if not 0 <= coverer < coverers:
                raise MalformedMessage(
                    f"an acknowledgement for front or operator {coverer}, but there are only "
                    f"{coverers} fronts and operators with timers"
                )
        for stage, time, ids in cells:
            self._flip(stage, time, ids)
        for coverer, since, until in covered:
            self._cover(coverer, since, until)

    def deliver(self, node: int, time: int) -> None:
        """Record that the consumer has the outputs of a node below a time."""
        self._delivered[node] = max(self._delivered[node], time)

    def frontiers(self) -> tuple[int, ...]:
        """Return, per stage, the time below which this and all earlier stages are done.

        The last number is the frontier of outputs, which also waits until inputs are durable.
        Updates `arrived`.
        """
        frontier = min(self._done_below[: self._fronts])
        frontiers = []
        for stage, times in enumerate(self._times):
            cells = self._cells[stage]
            while times and times[0] not in cells:
                heappop(times)
            if times and times[0] < frontier:
                frontier = times[0]
            if waiting := self._waiting[stage]:
                self.arrived[stage] = frontier
                frontier = min(frontier, *(self._done_below[number] for number in waiting))
            frontiers.append(frontier)
        frontiers[-1] = min(frontier, self.durable)
        new = tuple(frontiers)
        if new != self._last:
            assert all(map(le, self._last, new)), f"a frontier went back from {self._last} to {new}"
            self._last = new
        return self._last

    @property
    def durable(self) -> int:
        """The time below which the records of all fronts survive a crash of the front."""
        return min(self._durable)

    @property
    def waits_for_logs(self) -> bool:
        """Whether the frontier of outputs waits only until input records are durable."""
        self.frontiers()  # removes finished times from the heaps
        return self.durable < min(
            [*self._done_below, *(times[0] for times in self._times if times)]
        )

    @property
    def processed(self) -> int:
        """The frontier of outputs: all stages have processed all elements below this time, and
        their input records are durable."""
        return self.frontiers()[-1]

    @property
    def delivered(self) -> int:
        """The time below which consumers have all outputs."""
        return min(self.processed, *self._delivered)

    def undelivered(self) -> list[int]:
        """Return the nodes whose consumer may lack outputs below `processed`."""
        processed = self.processed
        return [node for node, time in enumerate(self._delivered) if time < processed]

    def take_lagging_fronts(self) -> list[tuple[int, int]]:
        """Return (front, time) of each lagging front; the caller requests a promise up to the time.

        A front lags if stage 0 has progressed further with the times of another front. Such a front
        may have no records: then only a promise is missing. Each pair is returned once. A front
        without a covered interval is omitted: it may not have joined this incarnation yet, and
        would drop the request. The next message would then show a gap in the numbers, which starts
        a recovery.
        """
        needed = max(self._done_below[: self._fronts])
        if needed >= INFINITY:  # a front has ended: the others need to pass only covered times
            needed = self.reached
        lagging_fronts = []
        for front, done_below in enumerate(self._done_below[: self._fronts]):
            has_joined = self._covered[front] > 0
            if has_joined and done_below < needed and self._requested[front] < needed:
                self._requested[front] = needed
                lagging_fronts.append((front, needed))
        return lagging_fronts

    def oldest(self) -> tuple[int, int] | None:
        """Return (time, stage) of the oldest frame known to be in flight, or None."""
        self.frontiers()  # removes finished times from the heaps
        candidates = [(times[0], stage) for stage, times in enumerate(self._times) if times]
        for done_below, sent_below in zip(
            self._done_below[: self._fronts], self._sent, strict=True
        ):
            if done_below < sent_below:
                candidates.append((done_below, 0))
        return min(candidates, default=None)

    def _flip(self, stage: int, time: int, ids: int) -> None:
        """XOR ids into a cell."""
        cells = self._cells[stage]
        old_ids = cells.get(time)
        if old_ids is None:
            if ids:
                cells[time] = ids
                heappush(self._times[stage], time)
        elif old_ids == ids:
            del cells[time]
        else:
            cells[time] = old_ids ^ ids


class ReportedProgress:
    """Progress of one incarnation from time `start`, as its nodes report it to the master.

    Only policies with label order use it. Each node has a `Tracker` that receives all
    acknowledgements, so the frontier of every node is valid, and the largest one counts. The master
    needs no tracker of its own: a new master knows the progress once every node has sent a
    `NodeProgress`. Invariant: `processed` and `delivered` never decrease.
    """

    def __init__(self, nodes: int, start: int = 0) -> None:
        self.processed = start
        """The largest `Tracker.processed` that a node reported."""
        self.reached = start
        """The largest `Tracker.reached` that a node reported."""
        self._delivered = [0] * nodes
        """Per node: the consumer has the node's outputs below this time."""
        self._last_sent: list[int | None] = [None] * nodes
        """Per node: largest time of an output that it may have sent; None before a report."""
        self._oldest: list[tuple[int, int] | None] = [None] * nodes
        """Per node: (time, stage) of the oldest frame that it knows to be in flight, or None."""
        self._waits_for_logs = [False] * nodes
        """Per node: `Tracker.waits_for_logs` in its last report."""

    def record_report(
        self,
        node: int,
        processed: int,
        delivered: int,
        reached: int,
        oldest: Sequence[int],
        waits: bool,
        last_sent: int = -1,
    ) -> None:
        """Record a node's report: the fields of a `NodeProgress` (`waits`: `waits_for_logs`)."""
        self.processed = max(self.processed, processed)
        self.reached = max(self.reached, reached)
        self._delivered[node] = max(self._delivered[node], delivered)
        self._oldest[node] = (oldest[0], oldest[1]) if len(oldest) == 2 else None
        self._waits_for_logs[node] = waits
        previous = self._last_sent[node]
        self._last_sent[node] = last_sent if previous is None else max(previous, last_sent)

    @property
    def delivered(self) -> int:
        """The time below which consumers have all outputs."""
        return min(self.processed, *self._delivered)

    @property
    def last_sent(self) -> int | None:
        """Largest time of an output that a node may have sent; None until all nodes have
        reported."""
        reported = [time for time in self._last_sent if time is not None]
        return max(reported) if len(reported) == len(self._last_sent) else None

    @property
    def waits_for_logs(self) -> bool:
        """Whether outputs of a node wait only for an input log, by the nodes' last reports."""
        return any(self._waits_for_logs)

    def undelivered(self) -> list[int]:
        """Return the nodes whose consumer may lack outputs below `processed`."""
        return [node for node, time in enumerate(self._delivered) if time < self.processed]

    def oldest(self) -> tuple[int, int] | None:
        """Return (time, stage) of the oldest frame in flight that a node reported, or None."""
        return min((oldest for oldest in self._oldest if oldest is not None), default=None)

    def take_lagging_fronts(self) -> list[tuple[int, int]]:
        """Return an empty list: nodes ask lagging fronts themselves, as they detect them sooner."""
        return []
