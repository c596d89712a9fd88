"""Blocks: elements that have come to a node and wait to be worked off.

`Waiting` holds them per stage and says which are worth working off now: under load, elements that
would only come late are held back until the tracker says that the stage before is done with them.
Nothing here is needed for correctness; what comes late all the same is put in its place.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate, groupby, pairwise
from operator import attrgetter, itemgetter

from driftline.engine.errors import MalformedMessage
from driftline.engine.flow.plan import Plan, Port
from driftline.engine.labels import INFINITY, Label
from driftline.engine.order.steps import MANY, Elements, Signs, Values, by_time, chosen
from driftline.engine.wire.codec import pack_rows, unpack_rows
from driftline.engine.wire.label_columns import Labels, divided, times

_time_of, _roots_of = attrgetter("time"), attrgetter("roots")
_second = itemgetter(1)

SPECULATE_UP_TO = 4
"""Roots that may be unsettled at a port while elements are applied in whatever order they come."""


class Batch:
    """Elements of one port. Their payloads are decoded no sooner than they are applied."""

    __slots__ = ("labels", "payloads", "signs")

    def __init__(self, labels: Labels, payloads: bytes | Values, signs: Signs) -> None:
        self.labels = labels
        self.payloads = payloads
        self.signs = signs

    def packed(self) -> bytes:
        """The payloads as they travel. Raises PayloadError."""
        return self.payloads if isinstance(self.payloads, bytes) else pack_rows(self.payloads)

    def elements(self) -> Elements:
        """With the payloads decoded. Raises MalformedMessage."""
        if not isinstance(self.payloads, bytes):
            return self.labels, self.payloads, self.signs
        values = unpack_rows(self.payloads)
        if len(values) != len(self.labels):
            raise MalformedMessage(f"{len(values)} payloads for {len(self.labels)} labels")
        return self.labels, values, self.signs

    def cut(self, count: int) -> tuple[Batch, Batch]:
        """The first `count` elements, and the others. Raises MalformedMessage."""
        labels, values, signs = self.elements()
        here, rest = divided(labels, count)
        return (
            Batch(here, values[:count], signs and signs[:count]),
            Batch(rest, values[count:], signs and signs[count:]),
        )


class Block:
    """Elements of one port, from one frame, in batches.

    `time`: the tracking time; `covers`: the times of the front that are done with it, if it is from
    a front; `first` and `last`: the smallest and largest time of an element; `roots`: how many
    different times that are not counted yet; `corrects`: whether something is taken back.
    """

    __slots__ = ("batches", "corrects", "covers", "first", "id", "last", "port", "roots", "time")

    def __init__(
        self,
        port: int,
        time: int,
        id: int,
        batches: list[Batch],
        covers: tuple[int, ...] = (),
    ) -> None:
        self.port = port
        self.time = time
        self.id = id
        self.batches = batches
        self.covers = covers
        self.corrects = False
        different: set[int] = set()
        for batch in batches:
            self.corrects |= batch.signs is not None
            different.update(times(batch.labels))
        self.roots = len(different)
        self.first = min(different)
        self.last = max(different)

    def part(self, time: int, *, before: bool) -> Block:
        """The elements before a time, with the block's id; or the others, with none yet (0)."""
        batches: list[Batch] = []
        for batch in self.batches:
            inside = [(t < time) is before for t in times(batch.labels)]
            if any(inside):
                whole = all(inside)
                batches.append(batch if whole else Batch(*chosen(batch.elements(), inside)))
        part = Block(self.port, self.time, self.id if before else 0, batches)
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

    def put_back(self, port: int, rest: list[Batch], id: int) -> Block:
        """Let the rest of blocks wait as a block of its own, under the smallest time in it.

        It comes before what comes now, which may take it back.
        """
        block = Block(port, 0, id, rest)
        block.time = block.first
        block.roots = 0  # they were counted when the elements were chosen the first time
        self._blocks[self._stage_of[port]].insert(0, block)
        return block

    def many(self) -> bool:
        """Whether more waits than a block, so that it may matter which of them may go."""
        return sum(map(len, self._blocks)) > 1

    def any(self, stage: int = 0) -> bool:
        """Whether something waits in a stage or in those after it."""
        return any(self._blocks[stage:])

    def first(self, stage: int) -> int:
        """The smallest tracking time in a stage; INFINITY if nothing waits there."""
        return min(map(_time_of, self._blocks[stage]), default=INFINITY)

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
        now, later = may_go(blocks, sum(map(_second, unsettled)), complete)
        self._blocks[port.stage] += later
        unsettled += [(block.last, block.roots) for block in now if block.roots]
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
    everything it could meet has been sent. A tombstone has the time of its element, so neither
    overtakes the other.
    """
    if unsettled + sum(map(_roots_of, blocks)) <= SPECULATE_UP_TO:
        return blocks, []
    now: list[Block] = []
    later: list[Block] = []
    for block in blocks:
        if block.last < complete:
            now.append(block)
        elif block.first >= complete:
            later.append(block)
        else:
            now.append(block.part(complete, before=True))
            later.append(block.part(complete, before=False))
    return now, later


def in_order(blocks: list[Block]) -> list[Batch]:
    """The batches of blocks of one port as they are best worked off: in label order.

    Elements with one label stay in the order of arrival: a tombstone must not overtake its element.
    """
    batches = [batch for block in blocks for batch in block.batches]
    if len(batches) == 1:
        return batches
    if any(block.corrects for block in blocks):
        return [_merged(batches)]
    batches.sort(key=_first_label)
    spans = [(min(found), max(found)) for found in (times(batch.labels) for batch in batches)]
    if all(one[1] <= other[0] for one, other in pairwise(spans)):
        return batches
    parts = sorted((part for batch in batches for part in _parts(batch)), key=_first_label)
    ordered: list[Batch] = []
    for small, run in groupby(parts, key=lambda part: len(part.labels) < MANY):
        if small:
            ordered.append(_merged(run))
        else:
            ordered += run
    return ordered


def bounds(batches: list[Batch]) -> list[int]:
    """For each batch the smallest time that comes with it, or after it."""
    first = [min(times(batch.labels)) for batch in reversed(batches)]
    return list(accumulate(first, min))[::-1]


def _parts(batch: Batch) -> list[Batch]:
    """The parts of a batch that are of one time each; one that is stays packed."""
    if len(times(batch.labels)) == 1:
        return [batch]
    return [Batch(*part) for _, part in by_time(batch.elements())]


def _merged(batches: Iterable[Batch]) -> Batch:
    """The elements of batches in label order; those with one label as they come."""
    elements: list[tuple[Label, object, int]] = []
    for labels, values, signs in (batch.elements() for batch in batches):
        elements += zip(labels, values, signs or [1] * len(labels), strict=True)
    elements.sort(key=itemgetter(0))
    labels, values, signs = map(list, zip(*elements, strict=True))
    return Batch(labels, values, None if min(signs) > 0 else signs)


def _first_label(batch: Batch) -> Label:
    return batch.labels[0]
