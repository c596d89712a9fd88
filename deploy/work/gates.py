"""Gates: what stands between the arrival of a block and its chain.

`Gate` lets everything through at once. `BufferingGate` is the buffered ordering that the
literature compares with: elements wait until the frontier of their stage has passed them and are
then applied in label order, so nothing is ever undone, at the price of one more round of
acknowledgements.

While elements wait, their frames are acknowledged already (otherwise the stage's frontier could
never pass them); a *token* in the next stage's cell stands for what they will send later.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from operator import itemgetter

from driftline.deploy.work.blocks import Batch
from driftline.engine.order.steps import Signs, Step, Values
from driftline.engine.wire.label_columns import Labels

Token = tuple[int, int, int]
"""(stage, time, id): to be acknowledged when it is given, and again when it is taken."""


class Gate:
    """Lets blocks through at once."""

    holds_back = False

    def __init__(self, entry: Step) -> None:
        self.entry = entry

    def push(self, labels: Labels, values: Values, signs: Signs) -> list[Token]:
        """Take a block. Returns new tokens."""
        self.entry.push(labels, values, signs)
        return []

    def due(self, frontier: int) -> bool:
        """What is below the frontier of the stage may go now. Returns whether there is anything."""
        return False

    def take(self, frontier: int, room: int) -> tuple[Batch, list[Token]]:
        """Elements below the frontier of the stage, in order, and the tokens of their times.

        At most `room` of them; the token of a time goes with its last element.
        """
        raise AssertionError("nothing is held back")


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
        self.released = 0
        """Everything below this time may go, and nothing more of it may come."""

    def push(self, labels: Labels, values: Values, signs: Signs) -> list[Token]:
        assert signs is None, "in order, nothing is ever taken back"
        tokens = []
        for label, value in zip(labels, values, strict=True):
            time = label[0]
            assert time >= self.released, f"an element of time {time} after {self.released}"
            if time not in self.held:
                token = (self.stage + 1, time, self.new_id())
                self.held[time] = token, []
                heappush(self.times, time)
                tokens.append(token)
            self.held[time][1].append((label, value))
        return tokens

    def due(self, frontier: int) -> bool:
        self.released = max(self.released, frontier)
        return bool(self.times) and self.times[0] < frontier

    def take(self, frontier: int, room: int) -> tuple[Batch, list[Token]]:
        tokens = []
        elements: list[tuple[tuple[int, ...], object]] = []
        while self.due(frontier) and room:
            token, waiting = self.held[self.times[0]]
            waiting.sort(key=itemgetter(0))
            elements += waiting[:room]
            if len(waiting) > room:
                del waiting[:room]
                break
            room -= len(waiting)
            del self.held[heappop(self.times)]
            tokens.append(token)
        labels, values = zip(*elements, strict=True)
        return Batch(list(labels), list(values), None), tokens
