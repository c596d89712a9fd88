"""The pace of a node: how many elements fit into one turn, so that messages are seen in between.

Takes: the driver's clock, and the number of elements of each batch. Gives: how many elements of the
next batch to apply now. Invariant: a turn begins no batch once its time is over, but always applies
at least one element. This bounds the time of a turn; correctness never depends on it.

After a death a node is *careful*: from a given time on it applies elements one by one, and notes
each element before it is applied, until the run has passed another given time. If the node dies
again, the note names the element.

`Backpressure`: a node begins no blocks while its consumer, or a snapshot, is slow.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from driftline.deploy.node.blocks import ElementBatch
from driftline.engine.events import about, log
from driftline.engine.flow.plan import Plan, functions_of
from driftline.engine.meters import Stopwatch
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

WAITING_BYTES = 1 << 25
"""Bytes that may wait for the consumer, or for a snapshot, before the node stops."""

TELL_EVERY_S = 10.0
"""The brake is told of at most this often."""

Clock = Callable[[], float]
Note = Callable[[str], None]


def _stopped() -> float:
    """In place of a clock: no element takes any time, so no turn is over."""
    return 0.0


class TurnBudget:
    """The pace of one node.

    `clock`: gives seconds, monotonic; without one, turns have no end. `careful`: be careful from
    the first time on, until all nodes are past the last one; `note`: writes a note, or removes it
    (empty text).
    """

    def __init__(
        self,
        plan: Plan,
        clock: Clock | None = None,
        careful: tuple[int, int] = CARELESS,
        note: Note = lambda text: None,
    ) -> None:
        self._plan = plan
        self._clock = clock or _stopped
        self._careful_from, self._careful_until = careful
        self._note = note
        guess = (TURN_S * GUESS_WEIGHT, AT_FIRST * GUESS_WEIGHT) if clock else (0.0, 1.0)
        self._spent = [guess] * (2 * len(plan.ports))
        """Weighted (seconds, elements): per port, then per port for elements that its gate held."""
        self._last = self._until = 0.0
        """When the last batch ended; when the turn ends."""
        self.steps = 0
        """Batches that were applied, and steps of a restore: a sign of progress."""
        self.at: tuple[int, ElementBatch] | None = None
        """(port, batch) that is being applied."""

    def begin(self) -> None:
        """A turn begins."""
        self._last = self._clock()
        self._until = self._last + TURN_S

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

    def cut(self, port: int, batch: ElementBatch) -> tuple[ElementBatch, ElementBatch | None]:
        """Cut a batch: the elements to apply now, and the rest, if there is any."""
        count = self.room(port, max(times(batch.labels)) if self._careful_from >= 0 else 0)
        return (batch, None) if len(batch.labels) <= count else batch.cut(count)

    def begin_batch(self, port: int, batch: ElementBatch) -> None:
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

    def _shown(self, port: int, batch: ElementBatch) -> str:
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


class Backpressure:
    """The brake of one node; `name`: of the node, for people.

    While more than `waiting_bytes` of released outputs wait at the barrier for the consumer, the
    node applies no elements. So the frontiers stand still, the windows of the fronts fill, and the
    sources are held. The same holds while as many bytes of changes, and of outputs of an open
    epoch, wait for the next snapshot, and that waits for no block. From half of them on the node
    asks for a snapshot before it is due. The node goes on once the consumer has all but half of the
    bytes, so that it does not stop and go with each bundle.

    No members wait for each other in a circle: what is counted waits for nothing but a consumer or
    a disk, in every policy. Outputs that are not final, epochs that are open while no snapshot
    waits, and changes that wait for a production are not counted; acknowledgements, snapshots and
    commits go on, and so do elements that a gate releases.
    """

    def __init__(self, name: str, waiting_bytes: int = WAITING_BYTES) -> None:
        self.on = False
        """Whether the node stands still, as of the last `look`."""
        self.held = Stopwatch()
        """For how long it was on."""
        self.waiting_bytes = waiting_bytes
        self._name = name
        self._told_at = -inf
        self._told = False

    def look(self, waiting: int, unsaved: int, now: float) -> bool:
        """Returns whether the node may not begin blocks.

        `waiting`: bytes of outputs that wait for the consumer; `unsaved`: bytes that wait for a
        snapshot which waits for no block.
        """
        most = self.waiting_bytes // 2 if self.on else self.waiting_bytes
        before, self.on = self.on, waiting > most or unsaved > self.waiting_bytes
        self.held.look(self.on, now)
        if self.on and not before:
            self._told = now >= self._told_at + TELL_EVERY_S
            if self._told:
                self._told_at = now
                log.warning(
                    "%s holds its input back: %s",
                    *(self._name, self._why(waiting, unsaved)),
                    extra=about("held-back", name=self._name, waiting=waiting, unsaved=unsaved),
                )
        elif before and not self.on and self._told:
            log.info("%s takes input again", self._name, extra=about("goes-on", name=self._name))
        return self.on

    def _why(self, waiting: int, unsaved: int) -> str:
        if waiting:  # a snapshot may wait for the consumer, too
            return f"the consumer is slow, {(waiting + unsaved) / 1e6:.0f} MB wait for it"
        return f"snapshots are slow, {unsaved / 1e6:.0f} MB wait for the next one"
