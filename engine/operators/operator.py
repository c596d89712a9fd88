"""The contract of an operator: what a flow, its chains and the reference interpreter ask it for.

An operator is one class. It declares what it takes and keeps (`takes_function`,
`keyed`, `states`) and which labels its outputs have (`many`). It makes the step that runs it
(`step`), and says in plain code, which shares nothing with that step, what it means (`plain`).

To add an operator: write its class, name it in `engine.operators.registry`, and give
`Stream` or `KeyedStream` a method of its kind. Graphs, chains, the reference interpreter, Spark and
the simulation then have it. `Distinct` (`engine.operators.scan`) is an example.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

from driftline.engine.operators.context import Context
from driftline.engine.operators.ends import OutputEncoder
from driftline.engine.operators.steps import Failures, Fields, Function, Step
from driftline.engine.state.managed import State


@dataclass(frozen=True)
class Operator:
    """An operator without its functions: those belong to a `Vertex`.

    A subclass that has parameters declares them as fields of a frozen dataclass.
    """

    kind: ClassVar[str]
    """Its name in graphs and errors, and the name of the method that adds it to a flow."""
    keyed: ClassVar[bool] = False
    """Whether its elements are shuffled by key, and it has states."""
    takes_function: ClassVar[bool] = False
    """Whether the user gives it a function."""
    many: ClassVar[bool] = False
    """Whether each output has a label of its own: that of the element with its number appended.
    Otherwise an element has one output at most, at its own label."""
    passes_on: ClassVar[bool] = False
    """Whether its outputs are elements that it was given, still made by the operator before it."""
    is_source: ClassVar[bool] = False
    """Whether elements enter the flow here."""
    is_sink: ClassVar[bool] = False
    """Whether elements leave the flow here."""

    def step(self, vertex: Vertex, chain: Chain, maker: OutputEncoder) -> Step:
        """Make the step of a vertex. `maker`: the operator whose outputs are its elements."""
        raise NotImplementedError

    def plain(
        self, vertex: Vertex, context: Context, value: object, states: Sequence[object]
    ) -> list[object]:
        """Return the outputs for one element, as the reference interpreter defines them.

        `states`: of the element's key, as `engine.state.plain` makes them. Raises any exception of
        the user's function.
        """
        raise NotImplementedError


class KeyedOperator(Operator):
    """Base of the operators that have states by key.

    `Speculative` or `Arrival` (`engine.operators.keyed`) calls its function for each element. If
    an element comes late, they undo what later ones have changed, and call it again. If the
    frontier moves, their `close` and `settle` make the changes of state below it final. An operator
    that does more when the frontier moves makes a step of its own with these methods.
    """

    keyed = True
    states: ClassVar[tuple[State, ...]] = ()
    """What it keeps for each key, if the user does not declare it."""
    apply: ClassVar[Callable[..., object]]
    """Its function, if the user gives none: takes a value and its states, and returns the output.
    If there may be many outputs, it takes a Context first, and returns an iterable of outputs."""

    def step(self, vertex: Vertex, chain: Chain, maker: OutputEncoder) -> Step:
        maker = OutputEncoder(vertex.name, vertex.fields, chain.functions_follow(vertex))
        return chain.keyed(vertex, chain.after(vertex, maker), chain.failures, maker)


@dataclass(frozen=True, slots=True)
class Vertex:
    """One operator of a flow; `inputs`: the numbers of the vertices before it."""

    number: int
    operator: Operator
    name: str
    inputs: tuple[int, ...]
    function: Function | None = None
    key: Function | None = None
    states: tuple[State, ...] = ()
    fields: Fields = None
    line: str = field(default="", compare=False, repr=False)
    """The line of the user's own code that has made it."""
    key_line: str = field(default="", compare=False, repr=False)
    """The line that has made its key."""

    @property
    def kind(self) -> str:
        """The kind of its operator."""
        return self.operator.kind

    @property
    def keyed(self) -> bool:
        """Whether its input is shuffled by key."""
        return self.key is not None


KeyedStep = Callable[[Vertex, Step, Failures, OutputEncoder], Step]
"""Makes the step of a keyed operator: `Speculative` or `Arrival`."""


class Chain(Protocol):
    """The chain of steps that a step becomes a part of."""

    failures: Failures
    keyed: KeyedStep

    def after(self, vertex: Vertex, maker: OutputEncoder) -> Step:
        """Return what a vertex pushes its outputs into; `maker`: the operator that made them."""

    def sink(self, vertex: Vertex, maker: OutputEncoder) -> Step:
        """Return the step that hands outputs to the barrier as those of this sink."""

    def functions_follow(self, vertex: Vertex) -> bool:
        """Return whether other functions of the chain take the outputs of a vertex."""
