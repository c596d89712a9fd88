"""The pace of a node: how much work fits into one turn, so that messages are seen in between.

Takes what elements of each port have cost so far and the time (a clock that the driver gives); says
how much of a batch may be worked off now. A turn begins nothing more once its time is over, but one
batch is always worked off, however long it takes. Nothing here is needed for correctness.

After a death a node is *careful*: from a time on it goes element by element, and notes each before
it is applied, so that it is known afterwards which one it was at.
"""

from __future__ import annotations

from collections.abc import Callable

from driftline.deploy.work.blocks import Batch
from driftline.engine.flow.flow import Vertex
from driftline.engine.flow.plan import Plan
from driftline.engine.wire.label_columns import times

TURN_S = 0.1
"""After this time a turn begins nothing more."""

AT_FIRST = 256
"""Elements that are taken at once before it is known what they cost."""

GUESSED = 1e-6
"""The weight of that guess, in turns."""

CARELESS = -1, -1
"""No times that are worked off carefully."""

UNBOUNDED = 1 << 62

REMEMBERED = 0.5
"""What is left of older costs each time that new ones are known."""

RECORD_SHOWN = 200
"""Characters of a record that a note shows."""

Clock = Callable[[], float]
Note = Callable[[str], None]


def _stopped() -> float:
    """A clock without which turns are not bounded."""
    return 0.0


class Pace:
    """The time of the turns of one node."""

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
        guess = (turn_s * GUESSED, AT_FIRST * GUESSED) if clock else (0.0, 1.0)
        self._spent = [guess] * (2 * len(plan.ports))
        """(seconds, elements), the older the less: per port, then per port for what it held."""
        self._last = self._until = 0.0
        self.steps = 0
        """Batches that were worked off: a sign of progress."""
        self.at: tuple[int, Batch] | None = None
        """(port, what is being applied there)"""

    def begin(self) -> None:
        """A turn begins."""
        self._last = self._clock()
        self._until = self._last + self._turn_s

    @property
    def over(self) -> bool:
        """Whether the time of the turn is over, as of the last batch."""
        return self._last > self._until

    def step(self) -> bool:
        """A step is done that belongs to no port. Returns whether the time is over."""
        self.steps += 1
        self._last = self._clock()
        return self.over

    def room(self, port: int, last: int) -> int:
        """Elements of a port, none later than a time, that fit into the turn; at least one."""
        if 0 <= self._careful_from <= last:
            return 1
        seconds, elements = self._spent[port]
        left = self._until - self._last
        return max(1, int(left * elements / seconds)) if seconds else UNBOUNDED

    def cut(self, port: int, batch: Batch) -> tuple[Batch, Batch | None]:
        """What of a batch is to be applied now, and the rest."""
        seconds, elements = self._spent[port]  # nearly always all of it: without another call
        is_careful = self._careful_from >= 0
        if len(batch.labels) * seconds <= (self._until - self._last) * elements and not is_careful:
            return batch, None
        count = self.room(port, max(times(batch.labels)) if is_careful else 0)
        return (batch, None) if len(batch.labels) <= count else batch.cut(count)

    def begin_batch(self, port: int, batch: Batch) -> None:
        """A batch is about to be applied."""
        self.at = port, batch
        if self._careful_from >= 0:
            self._note(self._shown(port, batch))

    def end_batch(self, port: int, count: int) -> None:
        """So many elements have been applied."""
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
        """The run is past where it died."""
        if processed > self._careful_until:
            self._careful_from = -1

    def doing(self) -> str:
        """What is being applied, for people; may be asked by another thread."""
        at = self.at
        if at is None:
            return "what belongs to no element"
        port, batch = at
        labels = batch.labels
        of = "" if len(labels) == 1 else f"one of {len(labels)} elements from "
        return f"{self._operator(port)}, {of}label {list(labels[0])}"

    def _vertex(self, port: int) -> Vertex:
        return self._plan.ports[port % len(self._plan.ports)].vertex

    def _operator(self, port: int) -> str:
        vertex = self._vertex(port)
        if vertex.kind == "source":
            return f"a function after source {vertex.name!r}"
        return f"operator {vertex.name!r} or a function after it"

    def _shown(self, port: int, batch: Batch) -> str:
        vertex = self._vertex(port)
        labels, values, _ = batch.elements()
        key = ""
        if vertex.key is not None:
            try:
                key = f", key {vertex.key(values[0])!r:.{RECORD_SHOWN}}"
            except Exception as error:  # it is told when the element is applied
                key = f", key unknown ({type(error).__name__})"
        record = repr(values[0])[:RECORD_SHOWN]
        return f"{self._operator(port)}, label {list(labels[0])}{key}, record {record}"
