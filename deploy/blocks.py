"""Blocks: elements that have come to a node and wait to be worked off.

`Waiting` holds them per stage and says which are worth working off now: under load, elements that
would only come late are held back until the tracker says that the stage before is done with them.
Nothing here is needed for correctness; what comes late all the same is put in its place.
"""

from __future__ import annotations

from itertools import pairwise
from operator import itemgetter

from engine.labels import INFINITY, Label
from engine.operators import Elements, chosen
from engine.plan import Plan, Port
from engine.runs import times

SPECULATE_UP_TO = 4
"""Roots that may be unsettled at a port while elements are applied in whatever order they come."""


class Block:
    """Elements of one port, from one frame, in pieces.

    `time`: the tracking time; `covers`: the times of the front that are done with it, if it is from
    a front; `first` and `last`: the smallest and largest time of an element; `roots`: how many
    different times; `corrects`: whether something is taken back.
    """

    __slots__ = ("corrects", "covers", "first", "id", "last", "pieces", "port", "roots", "time")

    def __init__(
        self,
        port: int,
        time: int,
        id: int,
        pieces: list[Elements],
        covers: tuple[int, ...] = (),
    ) -> None:
        self.port = port
        self.time = time
        self.id = id
        self.pieces = pieces
        self.covers = covers
        self.corrects = any(signs is not None for _, _, signs in pieces)
        different = {time for labels, _, _ in pieces for time in times(labels)}
        self.roots = len(different)
        self.first = min(different)
        self.last = max(different)

    def part(self, time: int, *, before: bool) -> Block:
        """The elements before a time, with the block's id; or the others, with none yet (0)."""
        pieces: list[Elements] = []
        for piece in self.pieces:
            inside = [(t < time) is before for t in times(piece[0])]
            if any(inside):
                pieces.append(piece if all(inside) else chosen(piece, inside))
        part = Block(self.port, self.time, self.id if before else 0, pieces)
        if not before:
            part.time = part.first
        return part


class Waiting:
    """What waits at the ports of a node."""

    def __init__(self, plan: Plan, hold_back: bool) -> None:
        self._hold_back = hold_back
        self._blocks: list[list[Block]] = [[] for _ in range(plan.stages)]
        self._stage_of = [port.stage for port in plan.ports]
        self._unsettled: list[list[tuple[int, int]]] = [[] for _ in plan.ports]
        """Per port, (last time, roots) of the blocks that were taken and are not final."""

    def add(self, block: Block) -> None:
        """Let a block wait."""
        self._blocks[self._stage_of[block.port]].append(block)

    def any(self, stage: int = 0) -> bool:
        """Whether something waits in a stage or in those after it."""
        return any(self._blocks[stage:])

    def first(self, stage: int) -> int:
        """The smallest tracking time in a stage; INFINITY if nothing waits there."""
        return min((block.time for block in self._blocks[stage]), default=INFINITY)

    def take(self, stage: int) -> dict[int, list[Block]]:
        """What waits in a stage, by port."""
        blocks, self._blocks[stage] = self._blocks[stage], []
        by_port: dict[int, list[Block]] = {}
        for block in blocks:
            by_port.setdefault(block.port, []).append(block)
        return by_port

    def choose(
        self, port: Port, blocks: list[Block], complete: int
    ) -> tuple[list[Block], list[Block]]:
        """Those to be worked off now; and new ones, made by parting, that have no id yet.

        The others wait on. `complete`: the frontier of the stage before.
        """
        if not self._hold_back or not port.feeders:
            return blocks, []
        unsettled = self._unsettled[port.number]
        now, later = may_go(blocks, sum(roots for _, roots in unsettled), complete)
        self._blocks[port.stage] += later
        unsettled += [(block.last, block.roots) for block in now]
        return now, [block for block in later if not block.id]

    def settle(self, frontier: int) -> None:
        """Everything below the frontier is final."""
        for port, blocks in enumerate(self._unsettled):
            self._unsettled[port] = [block for block in blocks if block[0] >= frontier]


def may_go(blocks: list[Block], unsettled: int, complete: int) -> tuple[list[Block], list[Block]]:
    """The blocks of one port that are worth applying now, and those that are not yet.

    `unsettled`: roots that have been applied at the port and are not final; `complete`: the
    frontier of the stage before.

    Speculation saves latency while there is little to do. Under load it would only make elements
    come late: then a block waits until the frontier of the stage before has passed it, so that
    everything it could meet has been sent.
    """
    if unsettled + sum(block.roots for block in blocks) <= SPECULATE_UP_TO:
        return blocks, []
    if any(block.corrects for block in blocks):
        return blocks, []  # a tombstone must not be parted from its element
    now: list[Block] = []
    later: list[Block] = []
    for block in blocks:
        if block.last < complete or block.time < complete <= block.first:
            now.append(block)  # a tracking time below the frontier would hold everything up
        elif block.first >= complete:
            later.append(block)
        else:
            now.append(block.part(complete, before=True))
            later.append(block.part(complete, before=False))
    return now, later


def in_order(blocks: list[Block]) -> list[Elements]:
    """The pieces of blocks of one port as they are best worked off: in label order.

    Where something is taken back the order of arrival stays: a tombstone must not overtake its
    element.
    """
    pieces = [piece for block in blocks for piece in block.pieces]
    if len(pieces) == 1 or any(block.corrects for block in blocks):
        return pieces
    pieces.sort(key=_first_label)
    spans = [(min(found), max(found)) for found in (times(labels) for labels, _, _ in pieces)]
    if all(one[1] <= other[0] for one, other in pairwise(spans)):
        return pieces
    elements = [pair for labels, values, _ in pieces for pair in zip(labels, values, strict=True)]
    elements.sort(key=itemgetter(0))
    return [([label for label, _ in elements], [value for _, value in elements], None)]


def _first_label(piece: Elements) -> Label:
    return piece[0][0]
