"""Turn budget and back-pressure of a node.

`TurnBudget` bounds the duration of a turn, so that messages do not wait long. It takes the driver's
clock and the number of elements of each batch, and returns how many elements of the next batch to
apply now. Invariant: a turn begins no batch after `TURN_S`, but always applies at least one
element. Correctness does not depend on the budget.

After repeated crashes, a restarted node is *careful*: it applies the elements of an interval of
label times one by one, and writes a note about each before applying it. If the node crashes again,
the note names the element.

`Backpressure` pauses a node while its consumer, or a snapshot, is slow.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from driftline.deploy.node.input_queue import ElementBatch
from driftline.engine.events import event_fields, log
from driftline.engine.flow.plan import Plan, function_names
from driftline.engine.meters import Stopwatch
from driftline.engine.operators.context import format_short
from driftline.engine.operators.operator import Vertex
from driftline.engine.texts import format_label, reraise_interrupt

TURN_S = 0.1
"""Seconds after which a turn begins no batch."""

INITIAL_ELEMENTS = 256
"""Number of elements of a port assumed to fit into a turn before their cost is measured."""

GUESS_WEIGHT = 1e-6
"""Weight of the guess `INITIAL_ELEMENTS`, in turns: the first measured batch outweighs it."""

NOT_CAREFUL = -1, -1
"""Value of `careful` for a node that is not careful."""

UNBOUNDED = 1 << 62
"""More elements than any batch contains."""

COST_DECAY = 0.5
"""Factor by which each batch reduces the weight of older costs."""

WAITING_BYTES = 1 << 25
"""Bytes that may wait for the consumer, or for a snapshot, before the node pauses."""

LOG_EVERY_S = 10.0
"""Minimum seconds between two pauses that are logged."""

Clock = Callable[[], float]
Note = Callable[[str], None]


def _stopped_clock() -> float:
    """Return 0.0: a stopped clock, with which no turn is ever over."""
    return 0.0


class TurnBudget:
    """Turn budget of one node.

    `clock`: returns seconds, monotonic; None: turns have no time limit. `careful`: (first, last)
    label times: the node is careful from the first on, until all nodes have passed the last.
    `note`: writes a note, or removes it (empty text).
    """

    def __init__(
        self,
        plan: Plan,
        clock: Clock | None = None,
        careful: tuple[int, int] = NOT_CAREFUL,
        note: Note = lambda text: None,
    ) -> None:
        self._plan = plan
        self._clock = clock or _stopped_clock
        self._careful_from, self._careful_until = careful
        self._note = note
        guess = (TURN_S * GUESS_WEIGHT, INITIAL_ELEMENTS * GUESS_WEIGHT) if clock else (0.0, 1.0)
        self._spent = [guess] * (2 * len(plan.ports))
        """Weighted (seconds, elements), indexed by the `port` of `elements_left`."""
        self._measured_at = self._deadline = 0.0
        """When the last batch or step ended; when the time of the turn ends (clock times)."""
        self.steps = 0
        """Number of applied batches and restore steps: a sign of progress."""
        self.current_batch: tuple[int, ElementBatch] | None = None
        """(port, batch) that is being applied."""

    def begin(self) -> None:
        """Begin a turn."""
        self._measured_at = self._clock()
        self._deadline = self._measured_at + TURN_S

    @property
    def is_over(self) -> bool:
        """Whether the turn had exceeded its time when its last batch or step ended."""
        return self._measured_at > self._deadline

    def step(self) -> bool:
        """Count a step of a restore. Return whether the turn exceeds its time."""
        self.steps += 1
        self._measured_at = self._clock()
        return self.is_over

    def elements_left(self, port: int, last: int) -> int:
        """Return how many elements of a port fit into the turn, at least 1.

        `port`: the number of a port; for elements that waited at its gate, or in its operator with
        timers, this number plus the number of ports. `last`: the largest label time of the
        elements.
        """
        if 0 <= self._careful_from <= last:
            return 1
        seconds, elements = self._spent[port]
        time_left = self._deadline - self._measured_at
        return max(1, int(min(time_left * elements / seconds, UNBOUNDED))) if seconds else UNBOUNDED

    def cut(self, port: int, batch: ElementBatch) -> tuple[ElementBatch, ElementBatch | None]:
        """Cut a batch into the elements to apply now and the rest, if any."""
        count = self.elements_left(port, batch.last)
        return (batch, None) if len(batch.labels) <= count else batch.cut(count)

    def begin_batch(self, port: int, batch: ElementBatch) -> None:
        """Record that a batch is about to be applied."""
        self.current_batch = port, batch
        if self._careful_from >= 0:
            self._note(self._describe(port, batch))

    def end_batch(self, port: int, count: int) -> None:
        """Account for the batch, of `count` elements, that was applied."""
        now = self._clock()
        seconds, elements = self._spent[port]
        self._spent[port] = (
            seconds * COST_DECAY + now - self._measured_at,
            elements * COST_DECAY + count,
        )
        self._measured_at = now
        self.steps += 1
        self.current_batch = None
        if self._careful_from >= 0:
            self._note("")

    def record_processed(self, processed: int) -> None:
        """Record that all nodes processed all elements below `processed`."""
        if processed > self._careful_until:
            self._careful_from = -1

    def doing(self) -> str:
        """Describe the batch being applied, for people. May be called by another thread."""
        current = self.current_batch
        if current is None:
            return "work outside elements"
        port, batch = current
        labels, values, _ = batch.elements()
        if not values:
            return f"timers of {self._operators(port)}"
        size = "" if len(labels) == 1 else f"a batch of {len(labels)} elements that begins with "
        record = format_short(values[0])
        return f"{self._operators(port)}, {size}{format_label(labels[0])}, record {record}"

    def _vertex(self, port: int) -> Vertex:
        return self._plan.ports[port % len(self._plan.ports)].vertex

    def _operators(self, port: int) -> str:
        """Name the operators whose functions may be called with an element of a port."""
        vertex = self._vertex(port)
        names = function_names(self._plan.flow, vertex)
        text = f"operator{'s' * (len(names) != 1)} {', '.join(map(repr, names))}"
        if vertex.operator.is_source:
            return f"{text} after source {vertex.name!r}" if names else f"source {vertex.name!r}"
        return text

    def _describe(self, port: int, batch: ElementBatch) -> str:
        vertex = self._vertex(port)
        labels, values, _ = batch.elements()
        if not values:
            return f"timers of {self._operators(port)}"
        key = ""
        if vertex.key is not None:
            try:
                key = f", key {format_short(vertex.key(values[0]))}"
            except BaseException as error:  # applying the element will record this as a failure
                reraise_interrupt(error)
                key = f", key unknown ({type(error).__name__})"
        label = format_label(labels[0])
        return f"{self._operators(port)}, {label}{key}, record {format_short(values[0])}"


class Backpressure:
    """Back-pressure of one node; `name`: the node's name, for people.

    While more than `waiting_bytes` of released outputs wait at the barrier for the consumer, the
    node processes no blocks. Therefore the frontiers stop, the windows of the fronts fill, and the
    sources pause. The same happens while more than `waiting_bytes` of changes, and of outputs of an
    open epoch, wait for the next snapshot, unless that snapshot needs more blocks. When half of
    `waiting_bytes` wait for a snapshot, the node requests one early. The node resumes once at most
    half of `waiting_bytes` wait for the consumer, which avoids a pause after each bundle.

    Members cannot deadlock: the counted bytes wait only for a consumer or a disk, in every policy.
    Outputs that are not final, open epochs whose snapshot needs more blocks, and changes that wait
    for a production are not counted. Acknowledgements, snapshots and commits continue during a
    pause, and so do elements that a gate releases.
    """

    def __init__(self, name: str, waiting_bytes: int = WAITING_BYTES) -> None:
        self.is_paused = False
        """Whether the node has to pause, as of the last `update`."""
        self.paused_time = Stopwatch()
        """Total time during which `is_paused` held."""
        self.waiting_bytes = waiting_bytes
        self._name = name
        self._logged_at = -inf
        self._is_logged = False
        """Whether the current or last pause was logged."""

    def update(self, waiting: int, unsaved: int, now: float) -> bool:
        """Return whether the node has to pause.

        `waiting`: bytes of outputs that wait for the consumer; `unsaved`: bytes that wait for the
        next snapshot, 0 if this snapshot needs more blocks; `now`: seconds, monotonic.
        """
        limit = self.waiting_bytes // 2 if self.is_paused else self.waiting_bytes
        was_paused, self.is_paused = self.is_paused, waiting > limit or unsaved > self.waiting_bytes
        self.paused_time.update(self.is_paused, now)
        if self.is_paused and not was_paused:
            self._is_logged = now >= self._logged_at + LOG_EVERY_S
            if self._is_logged:
                self._logged_at = now
                log.warning(
                    "%s pauses its input: %s",
                    *(self._name, self._reason(waiting, unsaved)),
                    extra=event_fields(
                        "backpressure", name=self._name, waiting=waiting, unsaved=unsaved
                    ),
                )
        elif was_paused and not self.is_paused and self._is_logged:
            log.info(
                "%s resumes its input",
                self._name,
                extra=event_fields("backpressure-over", name=self._name),
            )
        return self.is_paused

    def _reason(self, waiting: int, unsaved: int) -> str:
        if waiting:  # a snapshot may wait for the consumer, too
            return f"the consumer is slow, {(waiting + unsaved) / 1e6:.0f} MB wait for it"
        return f"snapshots are slow, {unsaved / 1e6:.0f} MB wait for the next one"
