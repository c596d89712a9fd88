"""Tracking in a node: its own tracker, and its acknowledgements to other trackers.

In label order every node has a tracker and acknowledges processed frames to all other nodes at
once, so outputs leave without a round trip to the master. The master needs progress only for
snapshots and recovery, and receives it a little later (`NodeProgress`). Without label order only
the master has a complete tracker, and receives all acknowledgements.

Takes acknowledgements of other nodes, promises of fronts, and this node's own work (`acks`).
Returns acknowledgements, `NodeProgress`, `frontiers`, and `final_outputs`. Invariant: an
acknowledgement that contains the id of a processed frame also contains the ids of all frames sent
because of this frame. Therefore the node does not call `Acks.take` in the middle of a stage's work.
Several acknowledgements may be joined to one: the invariant holds for their XOR.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf

from driftline.acker.tracker import Tracker
from driftline.engine.event_time import Clock
from driftline.engine.flow.plan import Plan
from driftline.engine.labels import INFINITY
from driftline.engine.wire.messages import Acknowledge, NodeProgress, Promise

REPORT_DELAY_MAX_S = 0.005
"""Maximum delay in seconds of acknowledgements and reports for which no output waits."""

MANY_ROOTS = 8
"""Progress by at least this many roots is reported at once, as fronts may have full windows."""

Cells = tuple[tuple[int, int, int], ...]
"""(stage, tracking time, XOR of frame ids)"""

Intervals = tuple[tuple[int, int, int], ...]
"""(coverer, since, until). If the coverer is a front: the times that a processed frame of the front
covers. If it is an operator with timers: the times that the operator has completed."""

EventTimes = tuple[tuple[int, int, int], ...]
"""(front, time, event time) of the records in processed frames of fronts."""

Acknowledged = tuple[Cells, Intervals, EventTimes]
"""Content of an acknowledgement."""

NOTHING: Acknowledged = ((), (), ())
"""An empty acknowledgement."""


class Acks:
    """Frames processed and sent since the last acknowledgement."""

    def __init__(self) -> None:
        self._cells: dict[tuple[int, int], int] = {}
        self._covered: list[tuple[int, int, int]] = []
        self._event_times: list[tuple[int, int, int]] = []
        self.roots = 0
        """Number of roots in the processed frames of fronts."""

    def __bool__(self) -> bool:
        return bool(self._cells or self._covered)

    def add(self, stage: int, time: int, ids: int) -> None:
        """Add the id of a frame or hold that was sent or processed, or the XOR of several."""
        self._cells[stage, time] = self._cells.get((stage, time), 0) ^ ids

    def cover(self, front: int, interval: tuple[int, ...], roots: int) -> None:
        """Add a processed frame of a front; `interval`: the times that it covers (since, until)."""
        since, until = interval
        self._covered.append((front, since, until))
        self.roots += roots

    def join(
        self,
        cells: Iterable[tuple[int, int, int]] = (),
        covered: Iterable[tuple[int, int, int]] = (),
        event_times: Iterable[tuple[int, int, int]] = (),
    ) -> None:
        """Add another acknowledgement, or only its cells, covered times or event times."""
        for cell in cells:
            self.add(*cell)
        self._covered += covered
        self._event_times += event_times

    def take(self) -> Acknowledged:
        """Return the acknowledgement, and begin a new one."""
        cells = tuple((stage, time, ids) for (stage, time), ids in self._cells.items() if ids)
        covered, event_times = tuple(self._covered), tuple(self._event_times)
        self._cells.clear()
        self._covered.clear()
        self._event_times.clear()
        self.roots = 0
        return cells, covered, event_times


class Tracking:
    """Tracking of a node in one incarnation that starts at time `start`.

    `nodes`: number of nodes in the layout; `ordered`: whether the policy keeps label order;
    `speculative`: whether elements are applied without waiting at a gate (`BufferingGate`).
    """

    def __init__(
        self,
        plan: Plan,
        nodes: int,
        start: int,
        clock: Clock | None = None,
        *,
        ordered: bool,
        speculative: bool,
    ) -> None:
        self.acks = Acks()
        """Acknowledgement of the work since the last `end_turn`."""
        waiting = [port.stage for port in plan.waiting_ports for _ in range(nodes)]
        self.tracker = Tracker(plan.stages, plan.fronts, nodes, start, waiting)
        self._clock = clock
        self.frontiers = self.tracker.frontiers()
        """Frontiers of the stages at the last call of `update_frontiers`."""
        self.arrived = dict(self.tracker.arrived)
        """`Tracker.arrived` at the last call of `update_frontiers`."""
        self.is_stale = False
        """Whether the tracker received input since the last call of `update_frontiers`."""
        self.send_by = inf
        """Deadline for sending `take_for_master` and `take_for_peers` (seconds, monotonic)."""
        self._ordered = ordered
        self._last_stage_is_local = (
            speculative and plan.stages > 1 and not (waiting or plan.flow.loops)
        )
        """Whether outputs wait for the last stage of this node only (`final_outputs`).

        This holds if the flow has several stages, no loops and no operators with timers, and if
        elements wait at no gates.
        """
        self._last_stage = plan.stages - 1
        self._for_master = Acks()
        """Acknowledgement that the master has not received yet; unused in label order."""
        self._for_peers = Acks()
        """Acknowledgement that peers have not received yet; unused without label order."""
        self._delivered = 0

    def end_turn(self, now: float) -> Acknowledged:
        """End a turn, or the work of a stage. Return the acknowledgement to send to peers now.

        Return an empty one if none is due. If outputs of peers do not wait for the last stage of
        this node (`final_outputs`), work in the last stage may be acknowledged later
        (`take_for_peers`).
        """
        roots = self.acks.roots
        cells, covered, event_times = self.acks.take()
        self.is_stale = True
        self._report_soon(roots, now)
        if not self._ordered:
            self._for_master.join(cells, covered)
            return NOTHING
        self.acknowledge(cells, covered, event_times)
        self._for_peers.join(cells, covered, event_times)
        if (
            self._last_stage_is_local
            and not covered
            and all(cell[0] == self._last_stage for cell in cells)
        ):
            return NOTHING
        return self._for_peers.take()

    def take_for_peers(self) -> Acknowledged:
        """Return the pending acknowledgement for peers, and begin a new one."""
        return self._for_peers.take()

    def acknowledge(self, cells: Cells, covered: Intervals, event_times: EventTimes = ()) -> None:
        """Apply the acknowledgement of a node. Raises MalformedMessage."""
        self.is_stale = True
        self.tracker.acknowledge(cells, covered)
        if event_times and self._clock is not None:
            self._clock.record_all(event_times)

    def promise(self, message: Promise) -> None:
        """Apply a front's promise to send no record in an interval. Raises MalformedMessage."""
        self.is_stale = True
        self.tracker.promise(message.front, message.since, message.until, message.durable)

    def update_frontiers(self, now: float) -> bool:
        """Update `frontiers` and `arrived`. Return whether any moved; False without label order."""
        self.is_stale = False
        if not self._ordered:
            return False
        old_frontiers, self.frontiers = self.frontiers, self.tracker.frontiers()
        old_arrived, self.arrived = self.arrived, dict(self.tracker.arrived)
        if self.frontiers == old_frontiers and self.arrived == old_arrived:
            return False
        if self._clock is not None:
            self._clock.complete(self.frontiers[0])
        self._report_soon(0, now)
        return True

    def final_outputs(self, last_stage: int) -> int:
        """Return the time below which all outputs of this node are final.

        `last_stage`: the smallest tracking time of the blocks that wait at the node's last stage,
        or INFINITY.

        With `_last_stage_is_local`, an output does not wait for the last stage of other nodes,
        which sends nothing to this node. The output is final once three conditions hold: all nodes
        have passed its time in the earlier stages (`frontiers[-3]`; `frontiers[-1]` is that of
        outputs), the inputs are durable, and this node has passed its time in the last stage. All
        frames from the earlier stages have then arrived: channels keep their order, so a frame
        arrives before the acknowledgement that contains its id.
        """
        if not self._last_stage_is_local:
            return self.frontiers[-1]
        return min(self.frontiers[-3], self.tracker.durable, last_stage)

    def deliver(self, delivered: int, roots: int, now: float) -> None:
        """Record the node's delivered frontier; `roots`: how many roots it has passed, roughly."""
        if delivered > self._delivered:
            self._delivered = delivered
            self._report_soon(roots, now)

    def _report_soon(self, roots: int, now: float) -> None:
        delay_s = REPORT_DELAY_MAX_S if roots < MANY_ROOTS else 0.0
        self.send_by = min(self.send_by, now + delay_s)

    def take_for_master(self, last_sent: int = -1) -> Acknowledge | NodeProgress:
        """Return the progress for the master, and cancel `send_by`.

        `last_sent`: see `NodeProgress`.
        """
        self.send_by = inf
        delivered, tracker = min(self._delivered, INFINITY), self.tracker
        if not self._ordered:
            cells, covered, _ = self._for_master.take()
            return Acknowledge(cells, covered, delivered)
        oldest, waits = tracker.oldest() or (), int(tracker.waits_for_logs)
        return NodeProgress(tracker.processed, delivered, tracker.reached, oldest, waits, last_sent)
