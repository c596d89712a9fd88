"""The buffered ordering that the literature compares with: a gate in front of a chain.

Elements wait there until the frontier of their stage has passed them, and are then applied in label
order. So no element is ever undone, at the price of one more round of acknowledgements.

The frames of waiting elements are acknowledged at once, as the frontier of their stage could never
pass them otherwise. A *token* in a cell of the next stage stands for their outputs.

Takes: batches, the frontier of the stage. Gives: elements in label order, tokens. Invariant: for
each time with waiting elements exactly one token is in the cells.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from operator import itemgetter

from driftline.deploy.node.blocks import Batch
from driftline.engine.labels import Label
from driftline.engine.operators.steps import Signs, Values
from driftline.engine.wire.label_columns import Labels

Token = tuple[int, int, int]
"""(stage, time, id): acknowledged when elements begin to wait, and again when they are applied."""


class BufferingGate:
    """Holds elements back until the frontier of their stage has passed them."""

    def __init__(self, stage: int, new_id: Callable[[], int]) -> None:
        self.stage = stage
        self.new_id = new_id
        self.waiting: dict[int, tuple[Token, list[tuple[Label, object]]]] = {}
        """Time -> its token, and (label, payload) of its elements in order of arrival."""
        self.times: list[int] = []
        """A heap of the times in `waiting`."""
        self.released = 0
        """The frontier of the stage. Precondition of `push`: no element has a smaller time."""

    def push(self, labels: Labels, values: Values, signs: Signs) -> list[Token]:
        """Take a batch. Returns new tokens."""
        assert signs is None, "a tombstone in buffered order, which undoes nothing"
        tokens = []
        for label, value in zip(labels, values, strict=True):
            time = label[0]
            assert time >= self.released, (
                f"an element of time {time}, but the gate has released all below {self.released}"
            )
            if time not in self.waiting:
                token = (self.stage + 1, time, self.new_id())
                self.waiting[time] = token, []
                heappush(self.times, time)
                tokens.append(token)
            self.waiting[time][1].append((label, value))
        return tokens

    def due(self, frontier: int) -> bool:
        """Learn the frontier of the stage. Returns whether elements below it wait."""
        self.released = max(self.released, frontier)
        return bool(self.times) and self.times[0] < frontier

    def take(self, frontier: int, room: int) -> tuple[Batch, list[Token]]:
        """Remove elements below the frontier of the stage, at most `room`, in label order.

        Returns them, and the tokens of the times that have no waiting element any more.
        Precondition: `due(frontier)`.
        """
        tokens = []
        elements: list[tuple[Label, object]] = []
        while self.due(frontier) and room:
            token, of_time = self.waiting[self.times[0]]
            of_time.sort(key=itemgetter(0))
            elements += of_time[:room]
            if len(of_time) > room:
                del of_time[:room]
                break
            room -= len(of_time)
            del self.waiting[heappop(self.times)]
            tokens.append(token)
        labels, values = zip(*elements, strict=True)
        return Batch(list(labels), list(values), None), tokens
