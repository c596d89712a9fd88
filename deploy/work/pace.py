"""The pace of a node: how many elements fit into one turn, so that messages are seen in between.

Takes: the driver's clock, and the number of elements of each batch. Gives: how many elements of the
next batch to apply now. Invariant: a turn begins no batch once its time is over, but always applies
at least one element. This bounds the time of a turn; correctness never depends on it.

After a death a node is *careful*: from a given time on it applies elements one by one, and notes
each element before it is applied, until the run has passed another given time. If the node dies
again, the note names the element.
"""

from __future__ import annotations

from collections.abc import Callable

from driftline.deploy.work.blocks import Batch
from driftline.engine.flow.plan import Plan, functions_of
from driftline.engine.operators.context import shown
from driftline.engine.operators.operator import Vertex
from driftline.engine.texts import label_in_words, let_through
from driftline.engine.wire.label_columns import times

TURN_S = 0.1
"""Seconds after which a turn begins no batch."""

AT_FIRST = 256
"""Elements that fit into the first turn of a port, as a guess: their cost is not known yet."""

GUESS_WEIGHT = 1e-6
"""The weight of this guess, in turns."""

CARELESS = -1, -1
"""The `careful` times of a node that has not died: none."""

UNBOUNDED = 1 << 62
"""More elements than any batch has."""

REMEMBERED = 0.5
"""The weight of older costs is multiplied by this with each batch."""

Clock = Callable[[], float]
Note = Callable[[str], None]


def _stopped() -> float:
    """In place of a clock: no element takes any time, so no turn is over."""
    return 0.0


class Pace:
    """The pace of one node.

    `clock`: gives seconds, monotonic; without one, turns have no end. `turn_s`: seconds of a turn;
    `careful`: be careful from the first time on, until all nodes are past the last one; `note`:
    writes a note, or removes it (empty text).
    """

    def __init__(
        self,
        plan: Plan,
        clock: Clock | None = None,
        turn_s: float = TURN_S,
        careful: tuple[int, int] = CARELESS,
        note: Note = lambda text: None,
    ) -> None:
        self._plan = plan
        self._clock = clock or _stopped
        self._turn_s = turn_s
        self._careful_from, self._careful_until = careful
        self._note = note
        guess = (turn_s * GUESS_WEIGHT, AT_FIRST * GUESS_WEIGHT) if clock else (0.0, 1.0)
        self._spent = [guess] * (2 * len(plan.ports))
        """Weighted (seconds, elements): per port, then per port for elements that its gate held."""
        self._last = self._until = 0.0
        """When the last batch ended; when the turn ends."""
        self.steps = 0
        """Batches that were applied, and steps of a restore: a sign of progress."""
        self.at: tuple[int, Batch] | None = None
        """(port, batch) that is being applied."""

    def begin(self) -> None:
        """A turn begins."""
        self._last = self._clock()
        self._until = self._last + self._turn_s

    @property
    def over(self) -> bool:
        """Whether the time of the turn is over, as of the last batch."""
        return self._last > self._until

    def step(self) -> bool:
        """Count a step that belongs to no port. Returns whether the time of the turn is over."""
        self.steps += 1
        self._last = self._clock()
        return self.over

    def room(self, port: int, last: int) -> int:
        """How many elements of a port fit into the turn, at least 1; `last`: the largest time."""
        if 0 <= self._careful_from <= last:
            return 1
        seconds, elements = self._spent[port]
        time_left = self._until - self._last
        return max(1, int(min(time_left * elements / seconds, UNBOUNDED))) if seconds else UNBOUNDED

    def cut(self, port: int, batch: Batch) -> tuple[Batch, Batch | None]:
        """Cut a batch: the elements to apply now, and the rest, if there is any."""
        count = self.room(port, max(times(batch.labels)) if self._careful_from >= 0 else 0)
        return (batch, None) if len(batch.labels) <= count else batch.cut(count)

    def begin_batch(self, port: int, batch: Batch) -> None:
        """A batch is about to be applied."""
        self.at = port, batch
        if self._careful_from >= 0:
            self._note(self._shown(port, batch))

    def end_batch(self, port: int, count: int) -> None:
        """The batch, of `count` elements, has been applied."""
        now = self._clock()
        seconds, elements = self._spent[port]
        self._spent[port] = (
            seconds * REMEMBERED + now - self._last,
            elements * REMEMBERED + count,
        )
        self._last = now
        self.steps += 1
        self.at = None
        if self._careful_from >= 0:
            self._note("")

    def moved_to(self, processed: int) -> None:
        """All nodes have worked off all elements below this time."""
        if processed > self._careful_until:
            self._careful_from = -1

    def doing(self) -> str:
        """The element that is being applied, for people. May be called by another thread."""
        at = self.at
        if at is None:
            return "work for no single element"
        port, batch = at
        labels, values, _ = batch.elements()
        of = "" if len(labels) == 1 else f"one of {len(labels)} elements, the first: "
        record = shown(values[0])
        return f"{self._operators(port)}, {of}{label_in_words(labels[0])}, record {record}"

    def _vertex(self, port: int) -> Vertex:
        return self._plan.ports[port % len(self._plan.ports)].vertex

    def _operators(self, port: int) -> str:
        """The operators whose functions an element of a port may be given, one after the other."""
        vertex = self._vertex(port)
        names = functions_of(self._plan.flow, vertex)
        named = f"operator{'s' * (len(names) != 1)} {', '.join(map(repr, names))}"
        if vertex.operator.is_source:
            return f"{named} after source {vertex.name!r}" if names else f"source {vertex.name!r}"
        return named

    def _shown(self, port: int, batch: Batch) -> str:
        vertex = self._vertex(port)
        labels, values, _ = batch.elements()
        key = ""
        if vertex.key is not None:
            try:
                key = f", key {shown(vertex.key(values[0]))}"
            except BaseException as error:  # it becomes a failure when the element is applied
                let_through(error)
                key = f", key unknown ({type(error).__name__})"
        place = label_in_words(labels[0])
        return f"{self._operators(port)}, {place}{key}, record {shown(values[0])}"
