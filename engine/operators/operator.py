"""Contract of an operator with flows, chains and the reference interpreter.

An operator is one class. It declares its inputs and states (`takes_function`, `is_keyed`,
`states`) and the labels of its outputs (`emits_many`). It makes the step that runs it
(`make_step`), and defines its meaning in plain code that shares little with that step
(`apply_reference`).

To add an operator: write its class, list it in `engine.operators.registry`, and give `Stream` or
`KeyedStream` a method named after its kind, which adds a vertex to the flow (`_add_keyed`, if it is
keyed). Graphs, chains, the reference interpreter and Spark then support the operator. So does the
simulation, if the operator is keyed and has no function, parameters or timers, and its outputs are
pairs (word, number). Example: `Distinct` (`engine.operators.keyed_operators`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

from driftline.engine.event_time import EventTime
from driftline.engine.labels import Label
from driftline.engine.operators.context import Context
from driftline.engine.operators.outputs import OutputEncoder
from driftline.engine.operators.steps import FailureReporter, Fields, Function, Step
from driftline.engine.operators.timers import Timer, Timers
from driftline.engine.state.managed import State


@dataclass(frozen=True)
class Operator:
    """Kind of an operator, with its parameters. The user's functions belong to a `Vertex`.

    A subclass with parameters declares them as fields of a frozen dataclass.
    """

    kind: ClassVar[str]
    """Name of the kind in graphs and errors, and name of the method that adds the operator."""
    is_keyed: ClassVar[bool] = False
    """Whether the input is shuffled by key, and the operator has states."""
    takes_function: ClassVar[bool] = False
    """Whether the operator needs a user function."""
    emits_many: ClassVar[bool] = False
    """Whether an element may have several outputs. The label of each is the element's label with
    the output's number appended. Otherwise, an output has the label of its element."""
    sets_event_times: ClassVar[bool] = False
    """Whether functions return (event time, output) for each output, in ascending order. With
    `emits_many`."""
    counts_late: ClassVar[bool] = False
    """Whether the operator counts late elements: these may be missing in its outputs."""
    passes_on: ClassVar[bool] = False
    """Whether outputs are unchanged input elements. If one is invalid, the failure names the
    operator that made it, not this one."""
    user_sets_timers: ClassVar[bool] = False
    """Whether the user's functions set the timers, and so may set a timer again without end."""
    loops: ClassVar[bool] = False
    """Whether some outputs return to the operator."""
    is_source: ClassVar[bool] = False
    """Whether elements enter the flow here."""
    is_sink: ClassVar[bool] = False
    """Whether elements leave the flow here."""

    @property
    def output_delay(self) -> int:
        """How far outputs may lag behind the operator's watermark in event time, in microseconds.

        The watermarks of later operators lag behind by as much, so that the outputs are not late.
        """
        return 0

    def parameters(self) -> object:
        """Return the parameters, or None. They are part of the flow's code (`engine.flow.code`)."""
        return None

    def state_type(self, state: State) -> str:
        """Return the type of a state. Values are restored only to a state of the same type."""
        return type(state).__name__

    def make_step(self, vertex: Vertex, chain: Chain, encoder: OutputEncoder) -> Step:
        """Make the step of a vertex.

        `encoder`: encoder of the operator that made the input elements.
        """
        raise NotImplementedError

    def apply_reference(
        self, vertex: Vertex, context: Context, value: object, states: Sequence[object]
    ) -> list[object]:
        """Return the outputs for one element: the definition for the reference interpreter.

        `states`: the states of the element's key (`engine.state.plain`). Raises whatever the user
        function raises.
        """
        raise NotImplementedError

    def absorb(
        self, value: Any, event_time: int, watermark: int, states: Sequence[Any], timers: Timers
    ) -> bool:
        """Apply an element if it has no outputs; otherwise change nothing.

        This is a fast path of operators with timers, without a Context. Returns whether the
        element was applied.
        """
        return False

    def discard(self, timer: Timer, states: Sequence[Any]) -> None:
        """Drop the state that belongs to a timer, because its function has failed."""

    def fire_reference(
        self, vertex: Vertex, context: Context, timer: Timer, states: Sequence[object]
    ) -> list[object]:
        """Return the outputs for a timer: the definition for the reference interpreter."""
        raise NotImplementedError

    def discard_reference(self, timer: Timer, states: Sequence[Any]) -> None:
        """Do `discard` for the states of the reference interpreter."""
        self.discard(timer, states)


class KeyedOperator(Operator):
    """Base of the operators with state per key.

    Its step (`Speculative`, `TimedStep` or `ArrivalOrder`) calls the function for each element. If
    an element is out of order, `Speculative` undoes the later elements of the key and calls the
    function again for each of them. As the frontier advances, the step's method `close` drops what
    only an undo needs, and `settle` moves final state changes to the changelog.
    """

    is_keyed = True
    states: ClassVar[tuple[State, ...]] = ()
    """States per key, if the user does not declare them."""
    apply: ClassVar[Callable[..., object]]
    """Function of the vertex if the user gives none: takes a payload and the states of its key, and
    returns the output. With `emits_many`, it takes a Context first and returns an iterable of
    outputs."""

    def make_step(self, vertex: Vertex, chain: Chain, encoder: OutputEncoder) -> Step:
        encoder = OutputEncoder(vertex.name, vertex.fields, chain.functions_follow(vertex))
        return chain.make_keyed_step(
            vertex, chain.next_step(vertex, encoder), chain.failures, encoder
        )


@dataclass(frozen=True, slots=True)
class Vertex:
    """Operator in a flow.

    `number`: its index in the flow; `inputs`: the numbers of the vertices before it; `function`:
    the user's, or `KeyedOperator.apply`; `key`: the key function, if it is keyed; `fields`: names
    of the items of its outputs.
    """

    number: int
    operator: Operator
    name: str
    inputs: tuple[int, ...]
    function: Function | None = None
    key: Function | None = None
    states: tuple[State, ...] = ()
    fields: Fields = None
    line: str = field(default="", compare=False, repr=False)
    """Line of the user's own code that added the operator."""
    key_line: str = field(default="", compare=False, repr=False)
    """Line of the user's own code that called `key_by`."""
    on_timer: Function | None = None
    """Function for timers that fire; None: the operator has no timers."""
    event_time: EventTime | None = None
    """Settings of the event times of a source, if it has them. `function` then returns the event
    time of a record; without a function, this is the time of arrival."""

    @property
    def kind(self) -> str:
        """Kind of the operator."""
        return self.operator.kind

    @property
    def is_keyed(self) -> bool:
        """Whether the input is shuffled by key."""
        return self.key is not None

    @property
    def state_types(self) -> tuple[tuple[str, str], ...]:
        """(type, name) of each state."""
        return tuple((self.operator.state_type(each), str(each.name)) for each in self.states)


KeyedStepFactory = Callable[[Vertex, Step, FailureReporter, OutputEncoder], Step]
"""Factory of the step of a keyed operator: `Speculative`, `TimedStep` or `ArrivalOrder`."""


class Chain(Protocol):
    """Chain of steps that an operator's step joins."""

    failures: FailureReporter
    make_keyed_step: KeyedStepFactory

    def next_step(self, vertex: Vertex, encoder: OutputEncoder) -> Step:
        """Return the step that takes the outputs of a vertex; `encoder`: encodes these outputs."""

    def shuffle_step(self, vertex: Vertex, encoder: OutputEncoder) -> Step:
        """Return the shuffle in front of a keyed operator."""

    def sink_step(self, vertex: Vertex, encoder: OutputEncoder) -> Step:
        """Return the step that passes the outputs for a sink to the barrier."""

    def functions_follow(self, vertex: Vertex) -> bool:
        """Return whether other functions of the chain take the outputs of a vertex."""

    def record_event_times(self, timed: Iterable[tuple[Label, int]]) -> None:
        """Take (root, event time) of records and marks of a source, in label order."""
