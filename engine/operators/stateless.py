"""Stateless operators: map, filter and flat_map; source, union and sink."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress

from driftline.engine.operators.context import Context
from driftline.engine.operators.operator import Chain, Operator, Vertex
from driftline.engine.operators.outputs import OutputEncoder
from driftline.engine.operators.steps import (
    Elements,
    Failures,
    Function,
    Signs,
    Step,
    Values,
    called,
    children,
    chosen,
    iterable,
)
from driftline.engine.state.values import copies
from driftline.engine.wire.label_columns import Labels


class Stateless(Operator):
    """Base of the operators that call a function for each element and have no state."""

    takes_function = True

    def calls(self, function: Function) -> Function:
        """Return the callable for each element; `outputs` takes its results."""
        return function

    def outputs(
        self, labels: Labels, values: Values, results: Values, signs: Signs
    ) -> list[Elements]:
        """Return the outputs of a batch. `results`: those of the function, without failures."""
        raise NotImplementedError

    def step(self, vertex: Vertex, chain: Chain, maker: OutputEncoder) -> Step:
        if not self.passes_on:
            maker = OutputEncoder(vertex.name, vertex.fields)
        after, follow = chain.after(vertex, maker), chain.functions_follow(vertex)
        return StatelessStep(vertex, self, after, chain.failures, follow)


class StatelessStep:
    """Step that calls a user function for each element of a batch.

    `functions_follow`: whether later functions of the chain see the outputs, which are then copied.
    """

    def __init__(
        self,
        vertex: Vertex,
        operator: Stateless,
        after: Step,
        failures: Failures,
        functions_follow: bool = False,
    ) -> None:
        assert vertex.function is not None
        self.name = vertex.name
        self.made_at = vertex.line
        self.function = operator.calls(vertex.function)
        self.outputs = operator.outputs
        self.after = after
        self.failures = failures
        self.functions_follow = functions_follow

    def push(self, labels: Labels, values: Values, signs: Signs) -> None:
        results = called(self.function, self.name, values, self.made_at)
        good = self.failures.sort_out(labels, results, signs)
        if good is not None:
            values = list(compress(values, good))
            labels, results, signs = chosen((labels, results, signs), good)
        for out_labels, outputs, out_signs in self.outputs(labels, values, results, signs):
            if self.functions_follow:
                outputs = copies(outputs)
            self.after.push(out_labels, outputs, out_signs)


class Map(Stateless):
    """Operator with one output per element, at the element's label."""

    kind = "map"

    def outputs(
        self, labels: Labels, values: Values, results: Values, signs: Signs
    ) -> list[Elements]:
        return [(labels, results, signs)] if labels else []

    def plain(
        self, vertex: Vertex, context: Context, value: object, states: Sequence[object]
    ) -> list[object]:
        assert vertex.function is not None
        return [vertex.function(value)]


class Filter(Stateless):
    """Operator that passes the elements for which the function returns a true value."""

    kind = "filter"
    passes_on = True

    def calls(self, function: Function) -> Function:
        return lambda value: bool(function(value))

    def outputs(
        self, labels: Labels, values: Values, results: Values, signs: Signs
    ) -> list[Elements]:
        if all(results):
            return [(labels, values, signs)] if labels else []
        return [chosen((labels, values, signs), results)] if any(results) else []

    def plain(
        self, vertex: Vertex, context: Context, value: object, states: Sequence[object]
    ) -> list[object]:
        assert vertex.function is not None
        return [value] if vertex.function(value) else []


class FlatMap(Stateless):
    """Operator with any number of outputs; each appends its number to the element's label."""

    kind = "flat_map"
    many = True

    def calls(self, function: Function) -> Function:
        return lambda value: iterable(function(value))

    def outputs(
        self, labels: Labels, values: Values, results: Values, signs: Signs
    ) -> list[Elements]:
        return children(labels, results, signs)  # type: ignore[arg-type]

    def plain(
        self, vertex: Vertex, context: Context, value: object, states: Sequence[object]
    ) -> list[object]:
        assert vertex.function is not None
        return iterable(vertex.function(value))


class _PassingOn(Operator):
    passes_on = True

    def plain(
        self, vertex: Vertex, context: Context, value: object, states: Sequence[object]
    ) -> list[object]:
        return [value]


class SourceOperator(_PassingOn):
    """Entry of the records of an input."""

    kind = "source"
    is_source = True

    def step(self, vertex: Vertex, chain: Chain, maker: OutputEncoder) -> Step:
        return chain.after(vertex, maker)


class Union(_PassingOn):
    """All elements of several streams, unchanged."""

    kind = "union"

    def step(self, vertex: Vertex, chain: Chain, maker: OutputEncoder) -> Step:
        return chain.after(vertex, maker)


class Sink(_PassingOn):
    """Exit of outputs, through the barrier."""

    kind = "sink"
    is_sink = True

    def step(self, vertex: Vertex, chain: Chain, maker: OutputEncoder) -> Step:
        return chain.sink(vertex, maker)
