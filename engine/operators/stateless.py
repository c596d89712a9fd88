"""Stateless operators: map, filter and flat_map; source, union and sink."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress

from msgpack import ExtType

from driftline.engine.event_time import (
    event_time_of_mark,
    is_mark,
    timestamped,
    to_microseconds,
)
from driftline.engine.labels import Label
from driftline.engine.operators.context import Context
from driftline.engine.operators.operator import Chain, Operator, Vertex
from driftline.engine.operators.outputs import OutputEncoder
from driftline.engine.operators.steps import (
    Elements,
    FailureReporter,
    Function,
    Signs,
    Step,
    Values,
    call_each,
    children,
    collect_outputs,
    select_elements,
)
from driftline.engine.state.values import copy_outputs
from driftline.engine.wire.label_columns import Labels


class Stateless(Operator):
    """Base of the operators that call a function for each element and have no state."""

    takes_function = True

    def wrap_function(self, function: Function) -> Function:
        """Return the function to call for each element; `outputs` gets its results."""
        return function

    def outputs(
        self, labels: Labels, values: Values, results: Values, signs: Signs
    ) -> list[Elements]:
        """Return the outputs of a batch. `results`: results of the function, without failures."""
        raise NotImplementedError

    def make_step(self, vertex: Vertex, chain: Chain, encoder: OutputEncoder) -> Step:
        if not self.passes_on:
            encoder = OutputEncoder(vertex.name, vertex.fields)
        next_step, functions_follow = (
            chain.next_step(vertex, encoder),
            chain.functions_follow(vertex),
        )
        return StatelessStep(vertex, self, next_step, chain.failures, functions_follow)


class StatelessStep:
    """Step that calls a user function for each element of a batch.

    `functions_follow`: whether later functions of the chain see the outputs, which are then copied.
    """

    def __init__(
        self,
        vertex: Vertex,
        operator: Stateless,
        next_step: Step,
        failures: FailureReporter,
        functions_follow: bool = False,
    ) -> None:
        assert vertex.function is not None
        self.name = vertex.name
        self.fallback_line = vertex.line
        self.function = operator.wrap_function(vertex.function)
        self.outputs = operator.outputs
        self.next_step = next_step
        self.failures = failures
        self.functions_follow = functions_follow

    def push(self, labels: Labels, values: Values, signs: Signs) -> None:
        results = call_each(self.function, self.name, values, self.fallback_line)
        are_outputs = self.failures.report_failures(labels, results, signs)
        if are_outputs is not None:
            values = list(compress(values, are_outputs))
            labels, results, signs = select_elements((labels, results, signs), are_outputs)
        for out_labels, outputs, out_signs in self.outputs(labels, values, results, signs):
            if self.functions_follow:
                outputs = copy_outputs(outputs)
            self.next_step.push(out_labels, outputs, out_signs)


class Map(Stateless):
    """Operator with one output per element, at the element's label."""

    kind = "map"

    def outputs(
        self, labels: Labels, values: Values, results: Values, signs: Signs
    ) -> list[Elements]:
        return [(labels, results, signs)] if labels else []

    def apply_reference(
        self, vertex: Vertex, context: Context, value: object, states: Sequence[object]
    ) -> list[object]:
        assert vertex.function is not None
        return [vertex.function(value)]


class Filter(Stateless):
    """Operator that passes the elements for which the function returns a true value."""

    kind = "filter"
    passes_on = True

    def wrap_function(self, function: Function) -> Function:
        return lambda value: bool(function(value))

    def outputs(
        self, labels: Labels, values: Values, results: Values, signs: Signs
    ) -> list[Elements]:
        if all(results):
            return [(labels, values, signs)] if labels else []
        return [select_elements((labels, values, signs), results)] if any(results) else []

    def apply_reference(
        self, vertex: Vertex, context: Context, value: object, states: Sequence[object]
    ) -> list[object]:
        assert vertex.function is not None
        return [value] if vertex.function(value) else []


class FlatMap(Stateless):
    """Operator with any number of outputs per element.

    The label of an output is the element's label with the output's number appended.
    """

    kind = "flat_map"
    emits_many = True

    def wrap_function(self, function: Function) -> Function:
        return lambda value: collect_outputs(function(value))

    def outputs(
        self, labels: Labels, values: Values, results: Values, signs: Signs
    ) -> list[Elements]:
        return children(labels, results, signs)  # type: ignore[arg-type]

    def apply_reference(
        self, vertex: Vertex, context: Context, value: object, states: Sequence[object]
    ) -> list[object]:
        assert vertex.function is not None
        return collect_outputs(vertex.function(value))


class _PassingOn(Operator):
    passes_on = True

    def apply_reference(
        self, vertex: Vertex, context: Context, value: object, states: Sequence[object]
    ) -> list[object]:
        return [value]


class SourceOperator(_PassingOn):
    """Operator through which the records of an input enter the flow."""

    kind = "source"
    is_source = True

    def make_step(self, vertex: Vertex, chain: Chain, encoder: OutputEncoder) -> Step:
        next_step = chain.next_step(vertex, encoder)
        return next_step if vertex.event_time is None else EventTimeStep(vertex, chain, next_step)


class EventTimeStep:
    """Step that adds event times to the labels of records, and reports these times to the chain.

    The step reports the event times of marks (`engine.event_time.END`), too, but does not pass the
    marks on.
    """

    def __init__(self, vertex: Vertex, chain: Chain, next_step: Step) -> None:
        assert vertex.event_time is not None
        self.vertex = vertex
        self.chain = chain
        self.next_step = next_step
        self._event_time: Function | None = None
        """Function that returns the event time of a record. None: the event time is the time of
        arrival, which is the first number of the label."""
        if vertex.function is not None:
            extract, unit = vertex.function, vertex.event_time.unit
            self._event_time = lambda value: to_microseconds(extract(value), unit)

    def push(self, labels: Labels, values: Values, signs: Signs) -> None:
        vertex = self.vertex
        marks: list[tuple[Label, int]] = []
        if ExtType in map(type, values):
            are_marks = list(map(is_mark, values))
            marks = [
                (label, event_time_of_mark(value))
                for label, value, is_a_mark in zip(labels, values, are_marks, strict=True)
                if is_a_mark
            ]
            labels, values, signs = select_elements(
                (labels, values, signs), [not is_a_mark for is_a_mark in are_marks]
            )
        if self._event_time is None:
            extracted: Values = [label[0] for label in labels]
        else:
            extracted = call_each(
                self._event_time, f"event_time of {vertex.name}", values, vertex.line
            )
        are_valid = self.chain.failures.report_failures(labels, extracted, signs)
        if are_valid is not None:
            extracted = list(compress(extracted, are_valid))
            labels, values, signs = select_elements((labels, values, signs), are_valid)
        roots = list(labels)
        event_times: list[int] = extracted  # type: ignore[assignment]
        timed = zip(roots, event_times, strict=True)
        self.chain.record_event_times(sorted([*timed, *marks]) if marks else timed)
        if roots:
            self.next_step.push(list(map(timestamped, roots, event_times)), values, signs)


class Union(_PassingOn):
    """Operator that merges several streams: it passes all their elements."""

    kind = "union"

    def make_step(self, vertex: Vertex, chain: Chain, encoder: OutputEncoder) -> Step:
        return chain.next_step(vertex, encoder)


class Sink(_PassingOn):
    """Operator through which outputs leave the flow, to the barrier."""

    kind = "sink"
    is_sink = True

    def make_step(self, vertex: Vertex, chain: Chain, encoder: OutputEncoder) -> Step:
        return chain.sink_step(vertex, encoder)
