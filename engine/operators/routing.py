"""Operators without a function: where elements enter a flow, join others, and leave it."""

from __future__ import annotations

from collections.abc import Sequence

from driftline.engine.operators.context import Context
from driftline.engine.operators.ends import Maker
from driftline.engine.operators.operator import Chain, Operator, Vertex
from driftline.engine.operators.steps import Step


class _PassingOn(Operator):
    passes_on = True

    def plain(
        self, vertex: Vertex, context: Context, value: object, states: Sequence[object]
    ) -> list[object]:
        return [value]


class Source(_PassingOn):
    """Where the records of an input enter."""

    kind = "source"
    is_source = True

    def step(self, vertex: Vertex, chain: Chain, maker: Maker) -> Step:
        return chain.after(vertex, maker)


class Union(_PassingOn):
    """All elements of several streams: nothing is to be done for them."""

    kind = "union"

    def step(self, vertex: Vertex, chain: Chain, maker: Maker) -> Step:
        return chain.after(vertex, maker)


class Sink(_PassingOn):
    """Where outputs leave, through the barrier."""

    kind = "sink"
    is_sink = True

    def step(self, vertex: Vertex, chain: Chain, maker: Maker) -> Step:
        return chain.sink(vertex, maker)
