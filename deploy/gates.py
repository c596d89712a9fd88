"""Gates: what stands between the arrival of a block and its segment.

`Gate` lets everything through at once. `BufferingGate` is the buffered ordering that the
literature compares with: elements wait until the frontier of their stage has passed them and are
then applied in label order, so nothing is ever undone, at the price of one more acker round trip.

While elements wait, their frames are acknowledged already (otherwise the stage's frontier could
never pass them); a *token* in the next stage's cell stands for what they will send later.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import compress
from operator import itemgetter

from engine.operators import Labels, Signs, Step, Values

Token = tuple[int, int, int]
"""(stage, time, id): to be XORed at the acker when it is given, and again when it is taken."""


class Block:
    """Elements that wait to be worked off at a port, from one frame.

    `time`: the tracking time; `first` and `last`: the smallest and largest time of an element;
    `roots`: how many different times.
    """

    __slots__ = ("first", "id", "labels", "last", "port", "roots", "signs", "time", "values")

    def __init__(
        self, port: int, time: int, id: int, labels: Labels, values: Values, signs: Signs
    ) -> None:
        self.port = port
        self.time = time
        self.id = id
        self.labels = labels
        self.values = values
        self.signs = signs
        times = {labels[0][0], labels[-1][0]}
        if len(times) > 1:
            times = set(map(itemgetter(0), labels))
        self.roots = len(times)
        self.first = min(times)
        self.last = max(times)

    def part(self, time: int, *, before: bool) -> Block:
        """The elements before a time, with the block's id; or the others, with none yet (0)."""
        chosen = [(label[0] < time) is before for label in self.labels]
        labels = list(compress(self.labels, chosen))
        values = list(compress(self.values, chosen))
        if before:
            return Block(self.port, self.time, self.id, labels, values, None)
        return Block(self.port, min(labels)[0], 0, labels, values, None)


def in_order(blocks: list[Block]) -> list[Block]:
    """Blocks of one port as they are best worked off: joined, their elements in label order.

    Where something is taken back the order of arrival stays: a tombstone must not overtake its
    element.
    """
    if len(blocks) == 1 or any(block.signs is not None for block in blocks):
        return blocks
    elements = [pair for block in blocks for pair in zip(block.labels, block.values, strict=True)]
    elements.sort(key=itemgetter(0))
    labels, values = zip(*elements, strict=True)
    return [Block(blocks[0].port, 0, 0, list(labels), list(values), None)]


SPECULATE_UP_TO = 4
"""Roots that may be unsettled at a port while elements are applied in whatever order they come."""


def may_go(blocks: list[Block], unsettled: int, complete: int) -> tuple[list[Block], list[Block]]:
    """The blocks of one port that are worth applying now, and those that are not yet.

    `unsettled`: roots that have been applied at the port and are not final; `complete`: the
    frontier of the stage before.

    Speculation saves latency while there is little to do. Under load it would only make elements
    come late: then a block waits until the frontier of the stage before has passed it, so that
    everything it could meet has been sent. This is a matter of speed alone; what comes late all
    the same is put in its place.
    """
    if unsettled + sum(block.roots for block in blocks) <= SPECULATE_UP_TO:
        return blocks, []
    if any(block.signs is not None for block in blocks):
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


class Gate:
    """Lets blocks through at once."""

    holds_back = False

    def __init__(self, entry: Step) -> None:
        self.entry = entry

    def push(self, block: Block) -> list[Token]:
        """Take a block. Returns new tokens."""
        self.entry.push(block.labels, block.values, block.signs)
        return []

    def release(self, frontier: int) -> list[Token]:
        """Let go what is below the frontier of the stage. Returns tokens taken, by time."""
        return []


class BufferingGate(Gate):
    """Holds elements back until they are in order."""

    holds_back = True

    def __init__(self, entry: Step, stage: int, new_id: Callable[[], int]) -> None:
        super().__init__(entry)
        self.stage = stage
        self.new_id = new_id
        self.held: dict[int, tuple[Token, list[tuple[tuple[int, ...], object]]]] = {}
        self.times: list[int] = []
        """A heap of the times in `held`."""

    def push(self, block: Block) -> list[Token]:
        assert block.signs is None, "in order, nothing is ever taken back"
        tokens = []
        for label, value in zip(block.labels, block.values, strict=True):
            time = label[0]
            if time not in self.held:
                token = (self.stage + 1, time, self.new_id())
                self.held[time] = token, []
                heappush(self.times, time)
                tokens.append(token)
            self.held[time][1].append((label, value))
        return tokens

    def release(self, frontier: int) -> list[Token]:
        tokens = []
        elements: list[tuple[tuple[int, ...], object]] = []
        while self.times and self.times[0] < frontier:
            token, waiting = self.held.pop(heappop(self.times))
            waiting.sort(key=itemgetter(0))
            elements += waiting
            tokens.append(token)
        if elements:
            labels, values = zip(*elements, strict=True)
            self.entry.push(list(labels), list(values), None)
        return tokens
