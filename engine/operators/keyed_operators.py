"""Keyed operators: scan and process, which take a user function, and distinct."""

from __future__ import annotations

from collections.abc import Sequence

from driftline.engine.operators.context import Context
from driftline.engine.operators.operator import KeyedOperator, Vertex
from driftline.engine.operators.steps import collect_outputs
from driftline.engine.operators.timers import Timer
from driftline.engine.state.managed import ValueState


class Scan(KeyedOperator):
    """Operator with one output per element."""

    kind = "scan"
    takes_function = True

    def apply_reference(
        self, vertex: Vertex, context: Context, value: object, states: Sequence[object]
    ) -> list[object]:
        assert vertex.function is not None
        return [vertex.function(value, *states)]


class Process(KeyedOperator):
    """Operator with any number of outputs per element; the function sees its label and key."""

    kind = "process"
    takes_function = True
    emits_many = True

    def apply_reference(
        self, vertex: Vertex, context: Context, value: object, states: Sequence[object]
    ) -> list[object]:
        assert vertex.function is not None
        return collect_outputs(vertex.function(context, value, *states))

    def fire_reference(
        self, vertex: Vertex, context: Context, timer: Timer, states: Sequence[object]
    ) -> list[object]:
        assert vertex.on_timer is not None
        return collect_outputs(vertex.on_timer(context, timer, *states))


class Distinct(KeyedOperator):
    """Operator that passes the first element of each key, and drops later ones."""

    kind = "distinct"
    emits_many = True
    states = (ValueState[bool]("seen"),)

    def apply(self, context: Context, value: object, seen: ValueState[bool]) -> Sequence[object]:
        if seen.get(False):
            return ()
        seen.set(True)
        return (value,)

    def apply_reference(
        self, vertex: Vertex, context: Context, value: object, states: Sequence[object]
    ) -> list[object]:
        [seen] = states
        assert isinstance(seen, ValueState)
        is_first = seen.get() is None
        seen.set(True)
        return [value] if is_first else []
