"""Keyed operators with a function of the user: scan and process."""

from __future__ import annotations

from collections.abc import Sequence

from driftline.engine.operators.context import Context
from driftline.engine.operators.operator import KeyedOperator, Vertex
from driftline.engine.operators.steps import iterable


class Scan(KeyedOperator):
    """One output for each element."""

    kind = "scan"
    takes_function = True

    def plain(
        self, vertex: Vertex, context: Context, value: object, states: Sequence[object]
    ) -> list[object]:
        assert vertex.function is not None
        return [vertex.function(value, *states)]


class Process(KeyedOperator):
    """Any number of outputs for each element; the function sees its label and key."""

    kind = "process"
    takes_function = True
    many = True

    def plain(
        self, vertex: Vertex, context: Context, value: object, states: Sequence[object]
    ) -> list[object]:
        assert vertex.function is not None
        return iterable(vertex.function(context, value, *states))
