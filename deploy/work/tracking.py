"""A node's part of tracking: its own tracker, and what it tells those of others.

In label order every node has a tracker and is told by all others at once what they have worked
off, so that its outputs may leave without a round trip to the master. The master, which only needs
to know how far the whole is, is told the same a little later, and in fewer messages.

Invariant: what is taken out of a batch holds, with the id of a frame that was worked off, the ids
of all frames sent because of it; so nothing may be taken out in the middle of a stage's work.
Batches may be joined: the XOR of two wholes is a whole.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf

from driftline.acker.tracker import Tracker
from driftline.engine.flow.plan import Plan
from driftline.engine.labels import INFINITY
from driftline.engine.wire.messages import Acknowledge, Promise

TELL_WITHIN_S = 0.005
"""How long others may not know yet what no output of theirs waits for."""

MUCH = 8
"""Roots that are told of at once: there is load, and windows may be full."""

Cells = tuple[tuple[int, int, int], ...]
"""(stage, tracking time, XOR of ids)"""

Intervals = tuple[tuple[int, int, int], ...]
"""(front, since, until)"""


def token(node: int, start: int) -> tuple[int, int, int]:
    """The cell that holds every frontier back until a node has said what it sends again."""
    return 0, start, 1 << node


class Acks:
    """What has been worked off and sent since the last acknowledgement."""

    def __init__(self) -> None:
        self._cells: dict[tuple[int, int], int] = {}
        self._covered: list[tuple[int, int, int]] = []
        self.roots = 0
        """Roots that were worked off."""

    def __bool__(self) -> bool:
        return bool(self._cells or self._covered)

    def add(self, stage: int, time: int, ids: int) -> None:
        """A frame, or a token, was sent or worked off."""
        self._cells[stage, time] = self._cells.get((stage, time), 0) ^ ids

    def cover(self, front: int, covers: tuple[int, ...], roots: int) -> None:
        """A frame of a front was worked off."""
        since, until = covers
        self._covered.append((front, since, until))
        self.roots += roots

    def join(
        self, cells: Iterable[tuple[int, int, int]], covered: Iterable[tuple[int, int, int]]
    ) -> None:
        """Add a whole batch, or tokens."""
        for cell in cells:
            self.add(*cell)
        self._covered += covered

    def take(self) -> tuple[Cells, Intervals]:
        """Everything; nothing is left."""
        cells = tuple((stage, time, ids) for (stage, time), ids in self._cells.items() if ids)
        covered = tuple(self._covered)
        self._cells.clear()
        self._covered.clear()
        self.roots = 0
        return cells, covered


class Tracking:
    """What a node knows of progress in one incarnation, and what it has to tell of it."""

    def __init__(
        self, plan: Plan, nodes: int, start: int, *, ordered: bool, speculative: bool
    ) -> None:
        self.acks = Acks()
        """Of the turn that is under way."""
        self.tracker = Tracker(plan.stages, plan.fronts, nodes, start)
        self.frontiers = self.tracker.frontiers()
        """As far as they have been put into effect."""
        self.news = False
        """Whether there is something to put into effect, told by others or done here."""
        self.tell_by = inf
        self._ordered = ordered
        self._shuffles = speculative and plan.stages > 1
        """Whether there is a stage before the last one, and nothing is held back in the last."""
        self._last_stage = plan.stages - 1
        self._for_master = Acks()
        self._for_peers = Acks()
        self._delivered = 0

    def end_turn(self, now: float) -> tuple[Cells, Intervals]:
        """What peers have to hear of this turn at once; in label order it counts here, too.

        They wait for no more than the stages before the last one (`final_outputs`).
        """
        roots = self.acks.roots
        cells, covered = self.acks.take()
        self.news = True
        self._for_master.join(cells, covered)
        self._tell_soon(roots, now)
        if not self._ordered:
            return (), ()
        self.tracker.acknowledge(cells, covered)
        self._for_peers.join(cells, covered)
        if self._shuffles and not covered and all(cell[0] == self._last_stage for cell in cells):
            return (), ()
        return self._for_peers.take()

    def for_peers(self) -> tuple[Cells, Intervals]:
        """All that they do not know."""
        return self._for_peers.take()

    def acknowledge(self, cells: Cells, covered: Intervals) -> None:
        """Learn what another node has worked off. Raises MalformedMessage."""
        self.news = True
        self.tracker.acknowledge(cells, covered)

    def promise(self, message: Promise) -> None:
        """Learn what a front has nothing but. Raises MalformedMessage."""
        self.news = True
        self.tracker.promise(message.front, message.since, message.until, message.durable)

    def moved(self) -> bool:
        """Whether `frontiers` have moved since the last call; without an order they never do."""
        self.news = False
        if not self._ordered:
            return False
        before, self.frontiers = self.frontiers, self.tracker.frontiers()
        return self.frontiers != before

    def final_outputs(self, last_stage: int) -> int:
        """The outputs of this node below this time are final.

        `last_stage`: the first time of what has come to the node's last stage and is not worked
        off. The last stage of other nodes sends nothing here, and what the stages before it have
        sent has come before the acknowledgement that tells of it: channels keep their order. So
        once those stages are done with a time, only our own last stage has to be done with it, too.
        """
        if not self._shuffles:
            return self.frontiers[-1]
        return min(self.frontiers[-3], self.tracker.durable, last_stage)

    def deliver(self, delivered: int, roots: int, now: float) -> None:
        """The consumer has this node's outputs below a time: those of so many more roots."""
        if delivered > self._delivered:
            self._delivered = delivered
            self._tell_soon(roots, now)

    def _tell_soon(self, roots: int, now: float) -> None:
        within = TELL_WITHIN_S if roots < MUCH else 0.0
        self.tell_by = min(self.tell_by, now + within)

    def for_master(self) -> Acknowledge:
        """All that the master does not know."""
        self.tell_by = inf
        return Acknowledge(*self._for_master.take(), min(self._delivered, INFINITY))
