"""The graph of a flow: its operators and their connections, and the checks of the whole flow.

Users create the subclass `Flow` (`engine.flow.flow`). The methods of its streams
(`engine.flow.streams`) add operators.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from inspect import isasyncgenfunction, iscoroutinefunction
from typing import Any, Self, TypeVar

from driftline.engine.errors import FlowError
from driftline.engine.event_time import EventTime
from driftline.engine.events import event_fields, log
from driftline.engine.keygroups import GROUPS, GROUPS_MAX
from driftline.engine.operators.operator import Operator, Vertex
from driftline.engine.operators.steps import Fields, Function
from driftline.engine.operators.user_code import as_line, line_of_caller, variables_of
from driftline.engine.policy import Policy
from driftline.engine.state.managed import State
from driftline.engine.texts import counted

PATH_LENGTH_MAX = 100
"""Largest number of operators on a path from a source to a sink, both included. Each operator uses
some frames of Python's stack, which must leave room for the calls of user functions."""

T = TypeVar("T")


@dataclass(slots=True)
class FlowGraph:
    """Operators of a flow, from sources to sinks. `groups`: number of key groups."""

    name: str
    groups: int = GROUPS
    vertices: list[Vertex] = field(default_factory=list)
    """In topological order, as an operator is added after its inputs."""
    line: str = field(default_factory=line_of_caller, init=False, compare=False, repr=False)
    """Line of the user's own code that created the flow."""
    variables: list[tuple[Vertex, object, dict[str, object]]] = field(
        default_factory=list, init=False, compare=False, repr=False
    )
    """(vertex, function, values of the function's variables when the vertex was added) of vertices
    added since the last `validate`."""
    code: Any = field(default=None, init=False, compare=False, repr=False)
    """(number of vertices, their `engine.flow.code.Code`); None until computed."""

    def __post_init__(self) -> None:
        if type(self.groups) is not int or not 1 <= self.groups <= GROUPS_MAX:
            raise FlowError(
                f"flow {self.name!r} cannot have groups={self.groups!r}: give an int from 1 to "
                f"{GROUPS_MAX}{as_line(self.line)}"
            )

    @property
    def sources(self) -> list[Vertex]:
        """Sources in order of declaration; front i reads source i."""
        return [vertex for vertex in self.vertices if vertex.operator.is_source]

    @property
    def sinks(self) -> list[Vertex]:
        """Sinks in order of declaration."""
        return [vertex for vertex in self.vertices if vertex.operator.is_sink]

    @property
    def loops(self) -> list[Vertex]:
        """Operators that send messages to themselves."""
        return [vertex for vertex in self.vertices if vertex.operator.loops]

    def order_inputs(self, inputs: Mapping[str, T]) -> list[T]:
        """Return inputs, given by source name, in the order of the sources.

        Raises FlowError if a source has no input, or an input has no source.
        """
        names = [source.name for source in self.sources]
        sources = f"flow {self.name!r} has the source{'s' * (len(names) > 1)} {', '.join(names)}"
        if unknown := [name for name in inputs if name not in names]:
            raise FlowError(f"an input for {unknown[0]!r}, which is not a source: {sources}")
        if missing := [name for name in names if name not in inputs]:
            raise FlowError(f"no input for {', '.join(missing)}: {sources}")
        return [inputs[name] for name in names]

    def check_inputs(self, inputs: Sequence[object]) -> None:
        """Raise FlowError unless there is one input for each source."""
        count = len(self.sources)
        if len(inputs) != count:
            names = ", ".join(source.name for source in self.sources)
            raise FlowError(
                f"flow {self.name!r} has {counted(count, 'source')} ({names}): give "
                f"{counted(count, 'input')} in this order, not {len(inputs)}"
            )

    def check_nodes(self, nodes: int) -> None:
        """Raise FlowError if `nodes` is less than 1, or exceeds the number of key groups."""
        if not 1 <= nodes <= self.groups:
            raise FlowError(
                f"flow {self.name!r} cannot run on {counted(nodes, 'node')}: it has "
                f"{counted(self.groups, 'key group')}, and each node needs one; give at most "
                f"{counted(self.groups, 'node')}, or make the flow with more groups"
            )

    def check_policy(self, policy: Policy) -> None:
        """Raise FlowError if the flow has an operator that a policy does not support."""
        waiting = [vertex for vertex in self.vertices if vertex.on_timer is not None]
        if waiting and not policy.ordered:
            raise FlowError(
                f"{waiting[0].kind} {waiting[0].name!r} of flow {self.name!r} depends on event "
                f"time, which needs label order: run it with policy exactly-once, not {policy.name}"
            )

        if (loops := self.loops) and not policy.can_loop:
            raise FlowError(
                f"{loops[0].kind} {loops[0].name!r} of flow {self.name!r} needs label order by "
                f"speculation: run it with policy exactly-once, not {policy.name}"
            )

    def successors(self, number: int) -> list[Vertex]:
        """Return the vertices after a vertex, in the order of edges.

        A union occurs twice if it merges the vertex with itself.
        """
        return [v for v in self.vertices for input_number in v.inputs if input_number == number]

    def validate(self) -> Self:
        """Check the whole flow, and return it. Warn of functions that share a loop variable.

        Raises:
            FlowError: The flow is empty or has no sink, the outputs of an operator are not used, an
                operator lacks event times, or too many operators are in a row.
        """
        if not self.vertices:
            line = as_line(self.line)
            raise FlowError(f"flow {self.name!r} is empty: begin with flow.source(name){line}")
        if not self.sinks:
            line = as_line(self.vertices[-1].line)
            raise FlowError(f"flow {self.name!r} has no sink: end a stream with .sink(name){line}")
        self._check_event_times()
        for vertex in self.vertices:
            if not vertex.operator.is_sink and not self.successors(vertex.number):
                raise FlowError(
                    f"{vertex.kind} {vertex.name!r} of flow {self.name!r} leads nowhere: "
                    f"end it with .sink(name) or leave it out{as_line(vertex.line)}"
                )
        self._check_length()
        self._warn_of_loop_variables()
        return self

    def fronts_of(self, vertex: Vertex) -> dict[int, int]:
        """Return the numbers of the fronts whose sources reach a vertex, each with a delay.

        The vertex's watermark lags behind that of the source by this delay, in microseconds: the
        largest sum of `Operator.output_delay` on a way from the source.
        """
        delays = {vertex.number: 0}
        for candidate in reversed(self.vertices[: vertex.number + 1]):
            for number in candidate.inputs if candidate.number in delays else ():
                delay = delays[candidate.number] + self.vertices[number].operator.output_delay
                delays[number] = max(delay, delays.get(number, 0))
        numbers = [source.number for source in self.sources]
        return {i: delays[number] for i, number in enumerate(numbers) if number in delays}

    def _check_event_times(self) -> None:
        """Raise FlowError if an operator with timers lacks the event time of a source."""
        for vertex in self.vertices:
            if vertex.on_timer is None:
                continue
            for front in self.fronts_of(vertex):
                source = self.sources[front]
                if source.event_time is None:
                    raise FlowError(
                        f"{vertex.kind} {vertex.name!r} of flow {self.name!r} needs event times: "
                        f"give source {source.name!r} its event_time, or a tick"
                        f"{as_line(source.line)}"
                    )

    def _check_length(self) -> None:
        """Raise FlowError if there are too many operators in a row."""
        lengths: dict[int, int] = {}
        for vertex in self.vertices:
            input_lengths = (lengths[number] for number in vertex.inputs)
            lengths[vertex.number] = 1 + max(input_lengths, default=0)
            if lengths[vertex.number] > PATH_LENGTH_MAX:
                raise FlowError(
                    f"{vertex.kind} {vertex.name!r} of flow {self.name!r} is operator "
                    f"{PATH_LENGTH_MAX + 1} in a row, and {PATH_LENGTH_MAX} is the limit, with "
                    "source and sink: let one function do the work of several (lambda x: g(f(x))), "
                    f"and give .union all its streams at once{as_line(vertex.line)}"
                )

    def add(
        self,
        operator: Operator,
        name: str | None,
        inputs: tuple[int, ...],
        function: Function | None = None,
        key: Function | None = None,
        states: tuple[State, ...] = (),
        fields: Sequence[str] | None = None,
        key_line: str = "",
        on_timer: Function | None = None,
        event_time: EventTime | None = None,
    ) -> Vertex:
        """Add an operator after the vertices with the numbers `inputs`.

        `key_line`: the line of the user's own code that called `key_by`. Raises FlowError if an
        argument is invalid, or the name is taken.
        """
        number, kind = len(self.vertices), operator.kind
        if name is None:
            name = f"{kind}-{number}"
        if not isinstance(name, str) or not name:
            raise FlowError(f"the name of a {kind} must be a non-empty text, not {name!r}")
        if kinds := [vertex.kind for vertex in self.vertices if vertex.name == name]:
            raise FlowError(
                f"flow {self.name!r} already has a {kinds[0]} named {name!r}: "
                f"give it, or this {kind}, another name"
            )
        if operator.takes_function and not callable(function):
            raise FlowError(f"{kind} {name!r} needs a function, not {function!r}")
        for role, called in (
            ("function", function),
            ("key function", key),
            ("timer function", on_timer),
        ):
            if iscoroutinefunction(called) or isasyncgenfunction(called):
                raise FlowError(
                    f"{kind} {name!r}: its {role} is async, but operators call plain functions: "
                    "leave out async and await"
                )
        names = checked_fields(f"{kind} {name!r}", fields)
        line = line_of_caller()
        vertex = Vertex(
            *(number, operator, name, inputs, function, key, states, names, line, key_line),
            on_timer=on_timer,
            event_time=event_time,
        )
        self.vertices.append(vertex)
        self.variables += [(vertex, f, variables_of(f)) for f in (function, key, on_timer)]
        return vertex

    def _warn_of_loop_variables(self) -> None:
        """Warn of functions that were made in a loop and use the loop variable.

        All of them see the variable's last value. Criterion: several functions have the same code
        object, and a variable of one of them has changed since the operator was added.
        """
        code_counts = Counter(
            getattr(function, "__code__", None) for _, function, _ in self.variables
        )
        changed: dict[str, list[Vertex]] = {}
        for vertex, function, old_values in self.variables:
            for name, value in variables_of(function).items() if old_values else ():
                has_changed = name in old_values and old_values[name] is not value
                if has_changed and code_counts[getattr(function, "__code__", None)] > 1:
                    changed.setdefault(name, []).append(vertex)
        for name, vertices in changed.items():
            log.warning(
                "variable %s has changed since the functions of %s were made, and all of them use "
                "its last value; let each keep its own, as in lambda x, %s=%s: ...%s",
                *(name, ", ".join(vertex.name for vertex in vertices), name, name),
                as_line(vertices[0].line),
                extra=event_fields("loop-variable", variable=name),
            )
        self.variables.clear()


def checked_fields(operator: str, fields: Sequence[str] | None) -> Fields:
    """Return `fields` as a tuple, or None. Raises FlowError if they are not distinct names.

    `operator`: kind and name of the operator, for the error.
    """
    if fields is None:
        return None
    if isinstance(fields, str) or not all(isinstance(name, str) for name in fields):
        raise FlowError(f"{operator}: fields must be a sequence of names, not {fields!r}")
    if len(set(fields)) != len(fields):
        raise FlowError(f"{operator}: a name occurs twice in the fields {', '.join(fields)}")
    return tuple(fields)
